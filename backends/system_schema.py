"""A tree read from a system file into a checked `System`; every fault of the file is reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from ..ir.errors import SystemFileError, UnknownNameError, UsageError, did_you_mean
from ..ir.units import split_quantity
from .constants import KernelConstants, read_constants
from .network.section import LevelSection, level_faults, network_level
from .records import NumberRecord
from .system import (
    Chip,
    HostLink,
    HostMemory,
    Peaks,
    StackConstants,
    System,
)
from .system_numbers import (
    Bandwidth,
    Capacity,
    Count,
    FlopRate,
    Frequency,
    Latency,
    Number,
    Power,
    Ratio,
    Reserve,
    Section,
)
from .system_tree import Tree, assign, split_override


class MatmulSection(Section):
    """Dense matmul peaks; a dtype that no unit takes is left out."""

    bf16: FlopRate | None = None
    fp16: FlopRate | None = None
    tf32: FlopRate | None = None
    fp32: FlopRate
    fp64: FlopRate | None = None
    fp8: FlopRate | None = None
    fp6: FlopRate | None = None
    fp4: FlopRate | None = None
    int8: FlopRate | None = None
    int4: FlopRate | None = None


class VectorSection(Section):
    """Peaks outside the matmul units."""

    fp32: FlopRate


class HbmSection(Section):
    """The memory beside the chip."""

    capacity: Capacity
    bandwidth: Bandwidth


class CacheSection(Section):
    """The last level of memory on the chip that all of it shares."""

    capacity: Capacity
    bandwidth: Bandwidth | None = None


class MemorySection(Section):
    """The memory levels of a chip."""

    hbm: HbmSection
    l2: CacheSection


class HostLinkSection(Section):
    """The link of a chip to its host, one direction."""

    bandwidth: Bandwidth
    latency: Latency
    efficiency: Ratio


class HostMemorySection(Section):
    """The memory of a host, all sockets together."""

    capacity: Capacity
    bandwidth: Bandwidth
    efficiency: Ratio


class ChipSection(Section):
    """One accelerator."""

    name: str
    num_sms: Count
    clock: Frequency
    power: Power
    matmul: MatmulSection
    vector: VectorSection
    memory: MemorySection
    host_link: HostLinkSection | None = None


class NodeSection(Section):
    """What shares a board and a host."""

    num_chips: Count
    host_memory: HostMemorySection | None = None


class StackSection(Section):
    """Stack constants."""

    name: str
    launch_overhead: Latency
    collective_overhead: Latency
    memory_reserve: Reserve
    workspace: Reserve | None = None
    memory_packing: Ratio | None = None
    gradient_copy: bool = False
    kernels: Literal["eager", "merged", "torch", "fused"] = "eager"
    library: str = "pytorch"
    custom_all_reduce: bool = False
    attention: str = "flash2"
    issue_overhead: Latency | None = None
    graph_issue_overhead: Latency | None = None
    cuda_graph: bool = False


class SystemSection(Section):
    """The whole file, with the chip and the software that it refers to put in place."""

    name: str
    chip: ChipSection
    node: NodeSection
    network: list[LevelSection] = Field(min_length=1)
    stack: StackSection

    @model_validator(mode="after")
    def _check_levels(self) -> SystemSection:
        faults = list(level_faults(self.network))
        if faults:
            raise UsageError("network: " + "; ".join(faults))
        return self


def build_system(
    tree: dict[str, Tree], overrides: Sequence[str], where: str, calibrations: Sequence[tuple[str, dict[str, Tree]]]
) -> System:
    """Apply the overrides, check the tree and turn it into plain numbers.

    `calibrations` are laid over one another, the last before the others.

    Raises:
        UnknownNameError: an override of a key that no system has.
        SystemFileError: the tree breaks the schema.
    """
    kept = [text for text in overrides if not _of_calibration(text)]
    for text in kept:
        tree = _override(tree, text)
    try:
        file = SystemSection.model_validate(tree)
    except ValidationError as error:
        raise SystemFileError(_report(error, where, tree)) from None
    layers = [*calibrations, *(("--set", _as_layer(text)) for text in overrides if _of_calibration(text))]
    kernels, records = read_constants(calibrations[-1][0], layers, file.stack.library)
    _check_protocols(file.network, kernels, where)
    return System(
        name=file.name,
        chip=_chip(file.chip),
        node_size=int(file.node.num_chips.si),
        levels=tuple(network_level(level) for level in file.network),
        kernels=kernels,
        stack=_stack(file.stack),
        sources=(*_records(file, ""), *records),
        host=_host_memory(file.node.host_memory),
    )


def _check_protocols(levels: Sequence[LevelSection], kernels: KernelConstants, where: str) -> None:
    """Refuse a protocol of a level that no calibration has constants of."""
    known = list(kernels.collective)
    lines = [
        f"network.{v.name}.protocol: unknown '{v.protocol}'{did_you_mean(v.protocol, known)}"
        f" allowed: {', '.join(known)}"
        for v in levels
        if v.protocol is not None and v.protocol not in known
    ]
    if lines:
        raise SystemFileError(_counted(where, lines))


def _of_calibration(text: str) -> bool:
    return split_override(text)[0][0] == "calibration"


def _as_layer(text: str) -> dict[str, Tree]:
    """Turn `calibration.gemm.bf16.sustained=0.9` into a calibration of one constant."""
    keys, value = split_override(text)
    if len(keys) != 4:
        raise UsageError(f"cannot set '{text}': write calibration.CLASS.KIND.CONSTANT=value")
    _, cls, kind, key = keys
    block: Tree = {key: value, "source": "--set", "confidence": "estimated"}
    return {"kernels": {cls: {kind: block}}}


def _chip(chip: ChipSection) -> Chip:
    return Chip(
        name=chip.name,
        peak_flop_per_s=_peaks(chip.matmul),
        vector_flop_per_s=chip.vector.fp32.si,
        num_sms=int(chip.num_sms.si),
        clock_hz=chip.clock.si,
        hbm_bytes=chip.memory.hbm.capacity.si,
        hbm_bytes_per_s=chip.memory.hbm.bandwidth.si,
        l2_bytes=chip.memory.l2.capacity.si,
        power_w=chip.power.si,
        host_link=_host_link(chip.host_link),
        l2_bytes_per_s=_optional(chip.memory.l2.bandwidth),
    )


def _host_link(link: HostLinkSection | None) -> HostLink | None:
    return None if link is None else HostLink(link.bandwidth.si, link.efficiency.si, link.latency.si)


def _host_memory(memory: HostMemorySection | None) -> HostMemory | None:
    return None if memory is None else HostMemory(memory.capacity.si, memory.bandwidth.si, memory.efficiency.si)


def _peaks(matmul: MatmulSection) -> Peaks:
    return Peaks(
        bf16=_optional(matmul.bf16),
        fp16=_optional(matmul.fp16),
        tf32=_optional(matmul.tf32),
        fp32=matmul.fp32.si,
        fp8=_optional(matmul.fp8),
        int8=_optional(matmul.int8),
        fp64=_optional(matmul.fp64),
        fp6=_optional(matmul.fp6),
        fp4=_optional(matmul.fp4),
        int4=_optional(matmul.int4),
    )


def _optional(number: Number | None) -> float | None:
    return None if number is None else number.si


def _stack(section: StackSection) -> StackConstants:
    return StackConstants(
        name=section.name,
        launch_s=section.launch_overhead.si,
        collective_launch_s=section.collective_overhead.si,
        memory_reserve_bytes=section.memory_reserve.si,
        workspace_bytes=0.0 if section.workspace is None else section.workspace.si,
        memory_packing=1.0 if section.memory_packing is None else section.memory_packing.si,
        gradient_copy=section.gradient_copy,
        kernels=section.kernels,
        library=section.library,
        custom_all_reduce=section.custom_all_reduce,
        attention=section.attention,
        issue_s=0.0 if section.issue_overhead is None else section.issue_overhead.si,
        graph_issue_s=0.0 if section.graph_issue_overhead is None else section.graph_issue_overhead.si,
        cuda_graph=section.cuda_graph,
    )


def build_stack(tree: dict[str, Tree], where: str) -> StackConstants:
    """Check the constants of a software stack; SystemFileError when they break the schema."""
    try:
        return _stack(StackSection.model_validate(tree))
    except ValidationError as error:
        raise SystemFileError(_report(error, where, tree)) from None


def _records(section: Section, path: str) -> Iterator[NumberRecord]:
    if isinstance(section, Number):
        yield section.record(path)
        return
    for key in type(section).model_fields:
        below: object = getattr(section, key)
        here = f"{path}.{key}" if path else key
        if isinstance(below, Section):
            yield from _records(below, here)
        elif isinstance(below, list):
            for level in below:
                yield from _records(level, f"{here}.{level.name}")


def _override(tree: dict[str, Tree], text: str) -> dict[str, Tree]:
    keys, value = split_override(text)
    kind = _kind_at(keys, _level_names(tree))
    path = ".".join(keys)
    if kind is not None and not issubclass(kind, Number):
        raise UnknownNameError(f"'{path}' is a section; set one of its keys: {', '.join(kind.model_fields)}")
    return assign(tree, keys, value if kind is None else _leaf(kind, value, path))


def _leaf(kind: type[Number], text: str, path: str) -> Tree:
    try:
        number, unit = split_quantity(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return {
        "value": number,
        "unit": unit or kind.dimension,
        "source": "--set",
        "confidence": "estimated",
    }


def _kind_at(keys: Sequence[str], level_names: Sequence[str]) -> type[Section] | None:
    """Return the schema at a path, None for plain text; UnknownNameError names the nearest legal key."""
    kind: type[Section] | None = SystemSection
    path = "a system"
    rest = list(keys)
    while rest:
        key = rest.pop(0)
        if kind is None or issubclass(kind, Number):
            raise UnknownNameError(f"'{path}' has no parts; set it as a whole, as in {path}=...")
        if key not in kind.model_fields:
            raise UnknownNameError.of(f"key of {path}", key, kind.model_fields)
        is_list, kind = _field_kind(kind, key)
        path = key if path == "a system" else f"{path}.{key}"
        if is_list:
            if not rest:
                raise UnknownNameError(f"'{path}' is a list; go on with one of: {', '.join(level_names)}")
            if rest[0] not in level_names:
                raise UnknownNameError.of(f"level of {path}", rest[0], level_names)
            path += f".{rest.pop(0)}"
    return kind


def _field_kind(section: type[BaseModel], key: str) -> tuple[bool, type[Section] | None]:
    annotation = section.model_fields[key].annotation
    kinds = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and get_origin(t) is None]
    return get_origin(annotation) is list, next((t for t in kinds if issubclass(t, Section)), None)


def _level_names(tree: dict[str, Tree]) -> list[str]:
    levels = tree.get("network")
    named = [level.get("name") for level in levels if isinstance(level, dict)] if isinstance(levels, list) else []
    return [name for name in named if isinstance(name, str)]


def _report(error: ValidationError, where: str, tree: dict[str, Tree]) -> str:
    lines = [_line(detail, _level_names(tree)) for detail in error.errors()]
    return _counted(where, lines)


def _counted(where: str, lines: Sequence[str]) -> str:
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    return "\n  ".join([f"system '{where}' has {count}:", *lines])


def _line(detail: ErrorDetails, level_names: Sequence[str]) -> str:
    loc = [_shown(part, level_names) for part in detail["loc"]]
    if detail["type"] in ("missing", "extra_forbidden"):
        *loc, key = loc
        message = f"missing {key}" if detail["type"] == "missing" else _unknown_key(loc, key, level_names)
    elif detail["type"] in ("model_type", "model_attributes_type"):
        message = f"expected a mapping such as {{value: 3350, unit: GB/s, source: ...}}, not {detail['input']!r}"
    else:
        message = _plain_message(detail)
    path = ".".join(loc[:-1] if loc and loc[-1] == "value" else loc)
    return f"{path}: {message}" if path else message


def _plain_message(detail: ErrorDetails) -> str:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {detail['input']!r}"


def _shown(part: int | str, level_names: Sequence[str]) -> str:
    return level_names[part] if isinstance(part, int) and part < len(level_names) else str(part)


def _unknown_key(loc: Sequence[str], key: str, level_names: Sequence[str]) -> str:
    kind = _kind_at(loc, level_names) if loc else SystemSection
    allowed = sorted(kind.model_fields) if kind else []
    return f"unknown key '{key}'{did_you_mean(key, allowed)} allowed: {', '.join(allowed)}"
