"""What is run of a model on more than tensors of given sizes: tokens with pictures among them, packed pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ...ir.graph import Workload
from ..huggingface.seq2seq import prefilled_pair
from ..loss import Labelled, returned
from ..record.adapter import FakeWorld
from ..workloads import Run, prefilled
from .feeding import Feeds

TOKENS = "input_ids"


def plan_fed(
    model: nn.Module, world: FakeWorld, workload: Workload, feeds: Feeds, speaks: bool, say: Callable[[str], None]
) -> Run:
    """Return inputs and call: a training step, a prefill that leaves a cache where the model speaks, or a forward pass.

    Training of logits [.., vocab] of the tokens starts from their cross-entropy, of all else from the sum of outputs,
    which is said.
    """
    made = feeds.made(world)
    with world.mode:
        labelled = Labelled.of(model, made)
    batch = feeds.lengths["batch"] if feeds.fixed else _batch(made, world, feeds)
    given: Mapping[str, object] = {**made, **feeds.beside(batch)}
    labels = {"labels": labelled.labels} if workload is Workload.TRAIN and labelled.labels is not None else {}

    def call() -> tuple[Tensor, ...]:
        with feeds.working_out():
            if workload is Workload.PREFILL and speaks:
                is_pair = bool(getattr(model.config, "is_encoder_decoder", False))
                return ((prefilled_pair if is_pair else prefilled)(model, given),)
            with torch.set_grad_enabled(workload is Workload.TRAIN):
                out = model(**given)
        if workload is not Workload.TRAIN:
            return tuple(returned(out))
        loss, note = labelled.loss(out)
        say(note)
        return (loss,)

    return Run({**made, **labels}, call)


def _batch(made: Mapping[str, Tensor], world: FakeWorld, feeds: Feeds) -> int | torch.SymInt:
    return made[TOKENS].shape[0] if TOKENS in made else world.size("batch", feeds.lengths)


__all__ = ["plan_fed"]
