"""What a graph is compared with: the module itself, unpatched, in float64 with random weights, under autograd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ....ir.graph import Graph, Workload
from ....ir.types import DType
from ...fold.blocks import Identity
from ...fold.trace import trace
from ...huggingface.configs.architectures import ModelConfig, choose
from ...huggingface.configs.building import build_noted
from ...huggingface.configs.models import Config
from ...huggingface.recording import hints_on
from ...loss import returned_tensor
from .double import in_double

# How far weights are moved from where the library initialises them: norms of one stay near one, nothing stays zero.
_SPREAD = 0.15


@dataclass(frozen=True)
class Answer:
    """What the module itself computes: loss, logits, and the gradient of each parameter that has one."""

    loss: Tensor
    logits: Tensor
    grads: Mapping[str, Tensor]


@dataclass(frozen=True)
class Subject:
    """A module with weights, and the graph that was recorded of it anew, with what each node computes."""

    name: str
    module: nn.Module
    graph: Graph
    vocabulary: int

    @property
    def state(self) -> Mapping[str, Tensor]:
        """Parameters and buffers by every name that they have."""
        parameters = self.module.named_parameters(remove_duplicate=False)
        buffers = self.module.named_buffers(remove_duplicate=False)
        return {n: t.detach() for n, t in (*parameters, *buffers)}

    def inputs(self, batch: int, seq: int) -> Mapping[str, Tensor]:
        """Return tokens and labels, the same ones each time."""
        made = torch.Generator().manual_seed(7)
        ids, labels = (torch.randint(3, self.vocabulary, (batch, seq), generator=made) for _ in range(2))
        return {"input_ids": ids, "labels": labels}

    def answer(self, inputs: Mapping[str, Tensor]) -> Answer:
        """Run the module forward and backward."""
        labels = inputs["labels"]
        with in_double():
            self.module.zero_grad(set_to_none=True)
            logits = returned_tensor(self.module(input_ids=inputs["input_ids"], use_cache=False), "logits")
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
            torch.autograd.backward(loss)
        grads = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        return Answer(loss.detach(), logits.detach(), grads)


def subject_of(config: Config, workload: Workload = Workload.TRAIN) -> Subject:
    """Build the model of a config twice: fake, to record it, and real, with seeded weights."""
    built = build_noted(config.text, DType.BF16)
    identity = Identity(config.name, workload, DType.BF16, hints=hints_on(built.module))
    graph = trace(built.module, identity, is_transformers=True)
    module = _real(config, workload)
    return Subject(config.name, module, graph, _vocabulary(module))


def _vocabulary(module: nn.Module) -> int:
    """The number of tokens that a model knows; one that also sees or hears says it of its text part."""
    said: object = module.config
    found = getattr(said, "vocab_size", 0) or getattr(getattr(said, "text_config", None), "vocab_size", 0)
    return int(found)


def _real(config: Config, workload: Workload) -> nn.Module:
    import transformers

    fields: dict[str, object] = json.loads(config.text)
    model_type = str(fields.pop("model_type"))
    chosen = choose(cast("ModelConfig", transformers.AutoConfig.for_model(model_type, **fields)))
    torch.manual_seed(0)
    options = {"dtype": torch.float64, "attn_implementation": "eager"}
    settable = getattr(chosen.model_class, "_can_set_experts_implementation", None)
    options |= {"experts_implementation": "eager"} if settable is not None and settable() else {}
    with in_double():
        module = chosen.model_class._from_config(chosen.config, **options)
    assert isinstance(module, nn.Module)
    module = module.double().train(workload is Workload.TRAIN)
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=made, dtype=torch.float64) * _SPREAD)
    return module


__all__ = ["Answer", "Subject", "subject_of"]
