"""Algorithms of post-training: which models look at a sample, which of them are trained, and whether samples are made.

Sources: PPO (arXiv 1707.06347) as in InstructGPT (arXiv 2203.02155); GRPO (arXiv 2402.03300), which has no critic; DPO
(arXiv 2305.18290), on pairs that are there; distillation on the student's own answers (arXiv 2306.13649).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...ir.errors import UnknownNameError
from ...ir.records import dataclass

POLICY, REFERENCE, CRITIC, REWARD, TEACHER = "policy", "reference", "critic", "reward", "teacher"


@dataclass(frozen=True, slots=True)
class PostTrainingAlgorithm:
    """What a step does with its samples.

    Attributes:
        name: as people know it.
        rolls_out: whether the policy answers prompts; else samples are there.
        looks: models that compute each sample forward, beside training.
        trains: models that are trained.
        sequences: sequences that a sample is: 2 of a pair.
    """

    name: str
    rolls_out: bool
    looks: tuple[str, ...]
    trains: tuple[str, ...] = (POLICY,)
    sequences: int = 1

    def without(self, models: tuple[str, ...]) -> PostTrainingAlgorithm:
        """Return the algorithm in which some models look at nothing."""
        looks = tuple(name for name in self.looks if name not in models)
        return PostTrainingAlgorithm(self.name, self.rolls_out, looks, self.trains, self.sequences)


ALGORITHMS: Mapping[str, PostTrainingAlgorithm] = MappingProxyType(
    {
        a.name: a
        for a in (
            PostTrainingAlgorithm("grpo", True, (POLICY, REFERENCE)),
            PostTrainingAlgorithm("ppo", True, (POLICY, REFERENCE, REWARD, CRITIC), (POLICY, CRITIC)),
            PostTrainingAlgorithm("distillation", True, (TEACHER,)),
            PostTrainingAlgorithm("dpo", False, (REFERENCE,), sequences=2),
            PostTrainingAlgorithm("sft", False, ()),
        )
    }
)


def algorithm(name: str) -> PostTrainingAlgorithm:
    """Return an algorithm by name; UnknownNameError names the nearest."""
    if name not in ALGORITHMS:
        raise UnknownNameError.of("algorithm of post-training", name, ALGORITHMS)
    return ALGORITHMS[name]
