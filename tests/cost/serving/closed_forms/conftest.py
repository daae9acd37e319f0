"""A replica whose times follow from a handful of numbers, so that a test can say what comes out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.software.engine import Engine, Overheads, Scheduler
from slipstick.cost.serving.batching.times import Curve, StepTimes, Surface

SIZES = np.unique(np.round(np.geomspace(1, 20_000, 60)))
CONTEXTS = np.unique(np.round(np.geomspace(1, 16_384, 40)))
PROMPTS = np.array([1.0, 4.0, 64.0, 1024.0])


@pytest.fixture(scope="session")
def replica() -> Callable[..., StepTimes]:
    """Build step times.

    A step of n tokens takes `max(read, token n) + fixed` seconds beside attention, that of a decode `look` seconds a
    token looked at, that of a prompt `square` for each pair of tokens; `kv` bytes a token of `free` are held.
    """

    def build(
        read: float = 5e-3, token: float = 2e-5, fixed: float = 1e-3, look: float = 1e-7, square: float = 1e-10,
        kv: float = 1.3e5, free: float = 4e10, groups: int = 1, pace: float = 1.0,
    ) -> StepTimes:  # fmt: skip
        knee = np.union1d(SIZES, read / token)
        rest = Curve(knee, np.maximum(read, knee * token) + fixed)
        looked = SIZES[:, None] * look * CONTEXTS[None, :]
        prompts = PROMPTS[:, None] * square * CONTEXTS[None, :] ** 2
        held = Curve(np.array([0.0, 1e6]), np.array([0.0, 1e6 * kv]))
        return StepTimes(
            rest, Surface(SIZES, CONTEXTS, looked), rest, Surface(PROMPTS, CONTEXTS, prompts), held, free, groups, pace
        )

    return build


@pytest.fixture(scope="session")
def engine() -> Callable[..., Engine]:
    """Build an engine: overheads by position, what the scheduler does otherwise by name."""

    def build(*overheads: float, **scheduler: bool | int) -> Engine:
        return Engine(scheduler=replace(Scheduler(), **scheduler), overheads=Overheads(*overheads))  # type: ignore[arg-type]

    return build
