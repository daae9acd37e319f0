"""All pipeline schedules by name, found in the files of `known/`, and which of them can run what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from ..errors import PlanError, UnknownNameError
from ..sizes.expr import Num
from . import known
from .kind import Flag, PipelineShape, Requirement, ScheduleKind

# What is run where nobody says how.
USUAL = "1f1b"


_FILES = (import_module(f"{known.__name__}.{module.name}") for module in iter_modules(known.__path__))
_FOUND: Sequence[ScheduleKind] = [module.SCHEDULE for module in _FILES]
# As they were published.
SCHEDULES: Mapping[str, ScheduleKind] = MappingProxyType(
    {kind.name: kind for kind in sorted(_FOUND, key=lambda kind: (kind.published, kind.name))}
)
# Words for schedules whose stages have several chunks.
ALIASES: Mapping[str, ScheduleKind] = MappingProxyType({kind.alias: kind for kind in SCHEDULES.values() if kind.alias})
# All words: an alias stands behind the name.
WORDS = tuple(word for kind in SCHEDULES.values() for word in (kind.name, kind.alias) if word)


def _asked(kind: ScheduleKind) -> Iterator[Requirement]:
    """What a schedule asks of its run: what follows from its facts, then what is its own."""
    if kind.split_backward:
        yield Requirement(
            lambda s: s.p == 1,
            lambda s: f"schedule {kind.name} fills the bubble between pipeline stages, pp=1 has none; legal pp: 2, 4",
        )
    if kind.chunks > 1:
        yield Requirement(
            lambda s: s.v != kind.chunks,
            lambda s: (
                f"schedule {kind.name} puts {kind.chunks} chunks on every stage, not vpp={s.v}; "
                f"legal vpp: {kind.chunks}"
            ),
        )
    elif kind.interleaves:
        yield Requirement(
            lambda s: (s.v > 1) & (s.p == 1),
            lambda s: f"vpp={s.v} interleaves pipeline stages, pp=1 has none; legal vpp: 1, or pp of 2 and more",
        )
    else:
        able = " and ".join(other.name for other in SCHEDULES.values() if other.interleaves)
        yield Requirement(
            lambda s: s.v > 1, lambda s: f"vpp={s.v} interleaves the schedules {able}, not {kind.name}; legal vpp: 1"
        )
    yield from kind.requirements


REQUIREMENTS: Mapping[str, tuple[Requirement, ...]] = MappingProxyType(
    {name: tuple(_asked(kind)) for name, kind in SCHEDULES.items()}
)


def schedule_kind(name: str) -> ScheduleKind:
    """Return the schedule of a name; UnknownNameError where there is none."""
    if name not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", name, SCHEDULES)
    return SCHEDULES[name]


def names_in(framework: str) -> tuple[str, ...]:
    """Return what a framework calls the schedules that it has: those of one chunk a stage, then the interleaved ones.

    >>> names_in("torch")[:2], names_in("megatron")
    (('1F1B', 'GPipe'), ('1F1B', 'interleaved with virtual stages'))
    """
    names = [kind.names[framework] for kind in SCHEDULES.values() if framework in kind.names]
    return tuple(name for several in (0, 1) for pair in names if (name := pair[several]))


def check_schedule(name: str, num_micro_batches: int, pp: int, vpp: int) -> None:
    """Check that a schedule can run so many micro-batches on so many stages and chunks.

    UnknownNameError for a schedule that does not exist; PlanError with the nearest legal values for one that cannot.
    """
    schedule_kind(name)
    shape = PipelineShape(num_micro_batches, pp, vpp)
    for requirement in REQUIREMENTS[name]:
        if requirement.broken(shape):
            raise PlanError(requirement.told(shape))


def can_run(name: str, num_micro_batches: Num, pp: Num, vpp: Num) -> Flag:
    """Whether a schedule can run so many micro-batches on so many stages and chunks, as `check_schedule` has it.

    Of columns, which of the rows.
    """
    shape = PipelineShape(num_micro_batches, pp, vpp)
    broken: Flag = False
    for requirement in REQUIREMENTS[name]:
        broken = broken | requirement.broken(shape)
    return broken ^ True
