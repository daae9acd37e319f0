"""The numbers of a machine that a step's time can depend on, and the machine with one of them times a factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from ...backends.kernels.constants import KernelConstants
from ...backends.kernels.operands import unit_of
from ...backends.machine.chip import Chip, HostLink, HostMemory, Peaks
from ...backends.machine.files.section import NumberField, numbers_of
from ...backends.machine.software.stack import StackConstants
from ...backends.machine.system import System
from ...backends.network.topology.level import NetworkLevel
from ...backends.pricing.timing import PricedGroup, Timing
from ...ir.records import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)

Scale: TypeAlias = Callable[[System, float], System]
# What a library adds to each step of a collective, beside its fixed work.
_STEP_TIMES = ("step_s", "issue_s", "fill_s")
_MESSAGES = ("collective", "custom_all_reduce")
# A protocol of its own for a level whose steps take longer.
_SLOWER = "{} at {}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a machine, or several that move together.

    Attributes:
        name: its path, as `--set` takes it; `overhead.*` stands for all times of a kind in calibration and stack.
        is_rate: whether more of it is faster.
        scaled: the system with it times a factor.
    """

    name: str
    is_rate: bool
    scaled: Scale


def parameters(system: System, timing: Timing) -> list[Parameter]:
    """Return the numbers that the time of these nodes can depend on: rates and times of chip, host, network, software.

    Left out are numbers that say how a rate is reached (efficiencies, SMs), and levels over which no message goes.
    """
    return [
        *_of_chip(system, timing),
        *_of_host(system, timing),
        *_of_network(system, timing),
        *_of_software(system, timing),
    ]


def _of_chip(system: System, timing: Timing) -> Iterator[Parameter]:
    # Matrix units that multiply something.
    for dtype in sorted(
        {
            dtype
            for p in timing.priced
            for dtype in (
                unit_of(str(e.dtype)) for e in p.group.entries if e.work.gemms or e.work.attention is not None
            )
        }
    ):
        yield Parameter(f"chip.matmul.{dtype}", True, _peak(dtype))
    for number in _moving(Chip):
        yield Parameter(f"chip.{number.path}", number.kind.better == "more", _chip(number.name))

    def fed(given: System, factor: float) -> System:
        """What is left of the power for the units, times a factor: as much work for less."""
        kinds = {k: replace(c, energy_j_per_flop=c.energy_j_per_flop / factor) for k, c in given.kernels.power.items()}
        return replace(given, kernels=replace(given.kernels, power=kinds))

    if any(constants.energy_j_per_flop for constants in system.kernels.power.values()):
        yield Parameter("chip.power", True, fed)


def _moving(record: type) -> Iterator[NumberField]:
    return (number for number in numbers_of(record) if number.key.moves)


def _of_host(system: System, timing: Timing) -> Iterator[Parameter]:
    if not any(map(_is_host, timing.priced)):
        return
    if system.chip.host_link is not None:
        for number in _moving(HostLink):
            yield Parameter(f"chip.host_link.{number.path}", number.kind.better == "more", _host_link(number.name))
    if system.host is not None:
        for number in _moving(HostMemory):
            yield Parameter(f"node.host_memory.{number.path}", number.kind.better == "more", _host_memory(number.name))


def _of_network(system: System, timing: Timing) -> Iterator[Parameter]:
    for level in system.levels:
        crosses = _crosses(level.name)
        if any(map(crosses, timing.priced)):
            yield Parameter(f"network.{level.name}.bandwidth", True, _level(level.name, _faster))
            yield Parameter(f"network.{level.name}.latency", False, _slower(level.name))


def _of_software(system: System, timing: Timing) -> Iterator[Parameter]:
    yield Parameter("overhead.kernels", False, _kernel_overheads)
    if any(map(_talks, timing.priced)):
        yield Parameter("overhead.collectives", False, _collective_overheads)
    state = system.stack.network
    if state.step_latency_s or state.all_reduces:
        yield Parameter("overhead.network", False, _network_state)
    if system.stack.spacing_s or any(getattr(system.stack.host, name) for name in _times_in(system.stack.host)):
        yield Parameter("overhead.host", False, _host_overheads)


def _talks(priced: PricedGroup) -> bool:
    return priced.collective is not None


def _is_host(priced: PricedGroup) -> bool:
    return priced.backend is not None and priced.backend.name == "host"


def _crosses(level: str) -> Callable[[PricedGroup], bool]:
    def crosses(priced: PricedGroup) -> bool:
        terms = [t for c in (priced.collective.candidates if priced.collective else ()) for t in c.terms]
        return any(t.level == level and (np.any(t.latency_s) or np.any(t.bandwidth_s)) for t in terms)

    return crosses


def _peak(dtype: str) -> Scale:
    def scaled(system: System, factor: float) -> System:
        peaks: Peaks = _times(system.chip.peak_flop_per_s, [dtype], factor)
        return replace(system, chip=replace(system.chip, peak_flop_per_s=peaks))

    return scaled


def _chip(field: str) -> Scale:
    def scaled(system: System, factor: float) -> System:
        chip: Chip = _times(system.chip, [field], factor)
        return replace(system, chip=chip)

    return scaled


def _host_link(field: str) -> Scale:
    def scaled(system: System, factor: float) -> System:
        link = system.chip.host_link
        changed = None if link is None else _times(link, [field], factor)
        return replace(system, chip=replace(system.chip, host_link=changed))

    return scaled


def _host_memory(field: str) -> Scale:
    def scaled(system: System, factor: float) -> System:
        return replace(system, host=None if system.host is None else _times(system.host, [field], factor))

    return scaled


def _level(name: str, change: Callable[[NetworkLevel, float], NetworkLevel]) -> Scale:
    def scaled(system: System, factor: float) -> System:
        levels = tuple(change(v, factor) if v.name == name else v for v in system.levels)
        return replace(system, levels=levels)

    return scaled


def _faster(level: NetworkLevel, factor: float) -> NetworkLevel:
    edges = tuple(_times(e, ["bytes_per_s"], factor) for e in level.edges)
    dragonfly = None if level.dragonfly is None else _times(level.dragonfly, ["global_bytes_per_s"], factor)
    return replace(level, bytes_per_s=level.bytes_per_s * factor, edges=edges, dragonfly=dragonfly)


def _slower(name: str) -> Scale:
    """Latencies of the level, and what its protocol adds to them."""

    def scaled(system: System, factor: float) -> System:
        (level,) = (v for v in system.levels if v.name == name)
        changed: NetworkLevel = _times(level, ["latency_s", "hop_latency_s", "reduction_latency_s"], factor)
        if not level.protocol:
            return _level(name, lambda *_: changed)(system, factor)
        protocol, table = _SLOWER.format(level.protocol, name), system.kernels.collective
        constants = {**table, protocol: _times(table[level.protocol], _STEP_TIMES, factor)}
        own = replace(system, kernels=replace(system.kernels, collective=constants))
        return _level(name, lambda *_: replace(changed, protocol=protocol))(own, factor)

    return scaled


def _kernel_overheads(system: System, factor: float) -> System:
    classes = [f.name for f in fields(KernelConstants) if f.name not in ("name", *_MESSAGES)]
    kernels = replace(system.kernels, **{cls: _kinds(system, cls, factor) for cls in classes})  # type: ignore[arg-type]
    return replace(system, kernels=kernels, stack=_times(system.stack, ["launch_s"], factor))


def _collective_overheads(system: System, factor: float) -> System:
    collective = {k: _times(c, ["overhead_s"], factor) for k, c in system.kernels.collective.items()}
    custom = {k: _times(c, ["overhead_s"], factor) for k, c in system.kernels.custom_all_reduce.items()}
    kernels = replace(system.kernels, collective=collective, custom_all_reduce=custom)
    return replace(system, kernels=kernels, stack=_times(system.stack, ["collective_launch_s"], factor))


def _kinds(system: System, cls: str, factor: float) -> Mapping[str, object]:
    kinds: Mapping[str, DataclassInstance] = getattr(system.kernels, cls)
    return {kind: _times(c, _times_in(c), factor) for kind, c in kinds.items()}


def _network_state(system: System, factor: float) -> System:
    state = system.stack.network
    measured = tuple(_times(m, ["time_s"], factor) for m in state.all_reduces)
    changed = replace(state, step_latency_s=state.step_latency_s * factor, all_reduces=measured)
    return replace(system, stack=replace(system.stack, network=changed))


def _host_overheads(system: System, factor: float) -> System:
    """What the host takes for a kernel, a layer, a micro-batch and a step."""
    stack: StackConstants = _times(system.stack, ["issue_s", "graph_issue_s"], factor)
    return replace(system, stack=replace(stack, host=_times(stack.host, _times_in(stack.host), factor)))


def _times_in(record: DataclassInstance) -> list[str]:
    """Name the fields that hold seconds."""
    return [f.name for f in fields(record) if f.name.endswith("_s") and not f.name.endswith("_per_s")]


def _times(record: R, names: Sequence[str], factor: float) -> R:
    """Return a record with some numbers times a factor; those that it leaves open stay so."""
    given = {name: getattr(record, name) for name in names}
    return replace(record, **{name: value * factor for name, value in given.items() if value is not None})
