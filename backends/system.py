"""A machine as the models see it: plain numbers in base units, read from the catalogue or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import SystemFileError, UnknownNameError
from .constants import KernelConstants
from .network.level import NetworkLevel
from .records import NumberRecord

if TYPE_CHECKING:
    from .system_tree import Tree

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Dense matmul peaks in FLOP/s by operand dtype; None where the chip has no such unit."""

    bf16: float | None
    fp16: float | None
    tf32: float | None
    fp32: float
    fp8: float | None
    int8: float | None
    fp64: float | None = None
    fp6: float | None = None
    fp4: float | None = None
    int4: float | None = None

    def by_dtype(self) -> dict[str, float]:
        """Return what there is by dtype, in the order of the fields."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {dtype: peak for dtype, peak in found.items() if peak is not None}

    def times(self, factor: float) -> Peaks:
        """Return all peaks scaled alike."""
        return replace(self, **{dtype: peak * factor for dtype, peak in self.by_dtype().items()})


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link of one chip to its host: one direction, the part that large copies reach, the time of an empty one."""

    bytes_per_s: float
    efficiency: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of the host of a node, which its chips share evenly."""

    num_bytes: float
    bytes_per_s: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator."""

    name: str
    peak_flop_per_s: Peaks
    vector_flop_per_s: float
    num_sms: int
    clock_hz: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    l2_bytes: float
    power_w: float
    host_link: HostLink | None = None
    l2_bytes_per_s: float | None = None

    def matmul_flop_per_s(self, dtype: str) -> float:
        """Return the dense matmul peak for operands of a dtype; UnknownNameError where the chip has none."""
        peaks = self.peak_flop_per_s.by_dtype()
        if dtype not in peaks:
            raise UnknownNameError.of(f"matmul dtype of {self.name}", dtype, peaks)
        return peaks[dtype]


@dataclass(frozen=True, slots=True)
class StackConstants:
    """What the software adds: time per kernel and per collective, memory that the model cannot have.

    Attributes:
        name: as people call it, `megatron-core`.
        launch_s: time of a kernel launch, for kernels without a model of their own.
        collective_launch_s: the same for a collective.
        memory_reserve_bytes: what driver, context and communication libraries take outside of the allocator.
        workspace_bytes: scratch buffers of libraries inside of the allocator.
        memory_packing: share of what the allocator holds that tensors fill.
        gradient_copy: whether data parallelism keeps gradients a second time, as they are computed, in its buckets.
        kernels: what its kernels keep and write in place, as in a plan's family.
        library: whose kernels it runs, by its name in calibrations.
        custom_all_reduce: whether it has an all-reduce in one kernel for small messages, as serving engines do.
        attention: its kernel of attention in training, by its name in calibrations.
        issue_s: time of the host to issue a kernel, without which the next cannot start.
        graph_issue_s: the same inside of a captured CUDA graph.
        cuda_graph: whether kernels are captured into graphs and replayed.
    """

    name: str
    launch_s: float
    collective_launch_s: float
    memory_reserve_bytes: float
    workspace_bytes: float = 0.0
    memory_packing: float = 1.0
    gradient_copy: bool = False
    kernels: str = "eager"
    library: str = "pytorch"
    attention: str = "flash2"
    issue_s: float = 0.0
    graph_issue_s: float = 0.0
    cuda_graph: bool = False
    custom_all_reduce: bool = False

    @property
    def spacing_s(self) -> float:
        """The least time from one kernel to the next: what the host, or a captured graph, takes to issue one."""
        return self.graph_issue_s if self.cuda_graph else self.issue_s


@dataclass(frozen=True, slots=True)
class System:
    """A machine: the chip, how many share a node, the network, and the constants of kernels and software."""

    name: str
    chip: Chip
    node_size: int
    levels: tuple[NetworkLevel, ...]
    kernels: KernelConstants
    stack: StackConstants
    sources: tuple[NumberRecord, ...]
    host: HostMemory | None = None


def load_system(
    name_or_path: str | Path, overrides: Sequence[str] = (), stack: str | None = None, calibration: str | None = None
) -> System:
    """Read a system of the catalogue by name, or a YAML file by path.

    Args:
        name_or_path: `dgx-h100`, or a path that ends in .yaml or .yml.
        overrides: `chip.memory.hbm.bandwidth=4.8TB/s`, applied in order before anything is checked; a bare
            number is in base units; the source of the number becomes `--set`.
        stack: the software stack of the catalogue that runs on it, in place of its own.
        calibration: name or path of the constants of its kernels, in place of its chip's; `default` for those that
            carry over to any chip.

    Raises:
        UnknownNameError: a name that is not in the catalogue, or an override of a key that no system has.
        SystemFileError: a file that cannot be read or breaks the schema; every fault is listed with its path.

    >>> load_system("dgx-h100", ["chip.memory.hbm.bandwidth=4.8TB/s"]).chip.hbm_bytes_per_s
    4800000000000.0
    """
    from .system_schema import build_system

    tree, where = _read_file("systems", name_or_path)
    chip = tree.get("chip")
    tree["chip"] = _referenced("chips", chip)
    tree["network"] = _levels(tree.get("network"))
    tree["stack"] = _referenced("stacks", stack or tree.get("stack", "default"))
    layers = _calibrations(calibration or tree.pop("calibration", None), chip)
    tree.pop("calibration", None)
    return build_system(tree, overrides, where, layers)


def load_stack(name: str) -> StackConstants:
    """Read the constants of a software stack of the catalogue; UnknownNameError names the nearest.

    >>> load_stack("megatron-core").kernels
    'fused'
    """
    from .system_schema import build_stack

    return build_stack(_catalogue("stacks", name), name)


def stack_names() -> tuple[str, ...]:
    """Name the software stacks of the catalogue.

    >>> "megatron-core" in stack_names()
    True
    """
    return _names("stacks")


def system_names() -> tuple[str, ...]:
    """Name the systems of the catalogue.

    >>> "dgx-h100" in system_names()
    True
    """
    return _names("systems")


def system_numbers(system: System) -> tuple[NumberRecord, ...]:
    """Return every number of a system with its path, unit and source, in the order of the file."""
    return system.sources


def _read_file(folder: str, name_or_path: str | Path) -> tuple[dict[str, Tree], str]:
    """Read a file of the catalogue by its name, or one by its path, and return it with what to call it."""
    from .system_tree import read_tree

    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        return _catalogue(folder, str(name_or_path)), str(name_or_path)
    kind = folder.removesuffix("s")
    try:
        return read_tree(path.read_text(encoding="utf-8"), path.name), path.name
    except OSError as error:
        raise SystemFileError(f"cannot read {kind} file '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SystemFileError(f"{kind} file '{path}' is not UTF-8 text") from error


def _calibrations(given: Tree, chip: Tree) -> list[tuple[str, dict[str, Tree]]]:
    """Return the constants that carry over, then those of the chip or those given."""
    layers = [("default", _catalogue("calibration", "default"))]
    if isinstance(given, dict):
        return [*layers, ("calibration", given)]
    name = given if isinstance(given, str) else chip if chip in _names("calibration") else "default"
    if name == "default" or not isinstance(name, str):
        return layers
    tree, where = _read_file("calibration", name)
    return [*layers, (where, tree)]


def _referenced(folder: str, given: Tree) -> Tree:
    return _catalogue(folder, given) if isinstance(given, str) else given


def _levels(network: Tree) -> Tree:
    """Put the levels of a network of the catalogue where a list of levels names it."""
    if not isinstance(network, list):
        return network
    return [level for entry in network for level in (_named_levels(entry) if isinstance(entry, str) else [entry])]


def _named_levels(name: str) -> list[Tree]:
    levels = _catalogue("networks", name)["levels"]
    assert isinstance(levels, list)
    return levels


def _catalogue(folder: str, name: str) -> dict[str, Tree]:
    from .system_tree import read_tree

    names = _names(folder)
    if name not in names:
        raise UnknownNameError.of(folder.removesuffix("s"), name, names)
    file = resources.files(_PACKAGE) / folder / f"{name}.yaml"
    return read_tree(file.read_text(encoding="utf-8"), name)


def _names(folder: str) -> tuple[str, ...]:
    files = (resources.files(_PACKAGE) / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))
