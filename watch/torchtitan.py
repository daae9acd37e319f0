"""A hook for torchtitan's Trainer: `with watch_trainer(trainer, "dgx-h100"): trainer.train()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from torch import nn

from ..frameworks.launch import Value
from ..frameworks.training.torchtitan import TORCHTITAN
from ..ir.errors import NotBuiltError
from ..ir.plan import PlanWords
from ..ir.plan.word import changed
from ..ir.plan.words import WORDS
from .session import RunWatch

if TYPE_CHECKING:
    from ..backends.machine.system import System


class TitanConfig(Protocol):
    """A config of a job, as `torchtitan.config` has it."""

    def to_dict(self) -> dict[str, object]:
        """Return sections of settings."""
        ...


class TitanTrainer(Protocol):
    """What is read of a Trainer of torchtitan: its model, a part a stage of this rank, and its ranks."""

    @property
    def model_parts(self) -> list[nn.Module]:
        """The parts of the model that this rank has."""
        ...


def watch_trainer(
    trainer: TitanTrainer,
    system: str | System,
    plan: PlanWords | None = None,
    stack: str = "torchtitan",
    every: int = 10,
    say: Callable[[str], None] | None = None,
) -> RunWatch:
    """Return a watch of a Trainer, to be entered around `trainer.train()`.

    The plan is that of its config, read as `slipstick import` reads a file of torchtitan. Else as `slipstick.watch`.

    Raises:
        NotBuiltError: a pipeline, of which each rank has a part of the model alone.
    """
    if len(trainer.model_parts) != 1:
        raise NotBuiltError(
            f"a rank with {len(trainer.model_parts)} parts of the model: under pipeline parallelism no rank holds "
            "the model to be recorded; estimate it from its config: slipstick import"
        )
    return RunWatch(trainer.model_parts[0], system, plan or words_of_config(trainer), stack, every, say)


def words_of_config(trainer: TitanTrainer) -> PlanWords:
    """Return the plan of a Trainer's config; its degrees are those of the ranks that it runs on.

    NotBuiltError for pipeline parallelism.
    """
    config = getattr(trainer, "job_config", None) or getattr(trainer, "config", None)
    world = getattr(getattr(trainer, "parallel_dims", None), "world_size", 1)
    given = {} if config is None else {**dict(_settings(config.to_dict())), **_policy_of(config)}
    said = TORCHTITAN.read(given, {}, int(world)).words
    words = {row.field: row.read(said[name]) for name, row in WORDS.items() if name in said}
    if words.get("pp", 1) != 1:
        raise NotBuiltError(
            f"pp={words['pp']}: under pipeline parallelism no rank holds the model to be recorded; estimate it "
            "from its config: slipstick import"
        )
    return changed(PlanWords(), words)


def _policy_of(config: TitanConfig) -> Mapping[str, Value]:
    """Return the policy of recomputation, which configs since torchtitan 0.3 say by the class of a section alone.

    `FullAC.Config`, `SelectiveAC.Config`, `MemoryBudgetAC.Config` or None: a section with a `mode` says it itself.
    """
    absent = object()
    section = getattr(config, "activation_checkpoint", absent)
    if section is absent or hasattr(section, "mode"):
        return {}
    named = type(section).__qualname__.partition(".")[0]
    policies = {"NoneType": "none", "FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
    return {"activation_checkpoint.mode": policies.get(named, named)}


def _settings(tree: Mapping[str, object], under: str = "") -> Iterator[tuple[str, Value]]:
    """Yield settings by their dotted name, as flags have them."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{under}{name}.")
        elif value is None or isinstance(value, str | int | float | bool | list | tuple):
            yield f"{under}{name}", value
