"""What the page asks for: names of the catalogue and numbers within bounds, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from ...backends.machine.load import load_system, system_names
from ...backends.machine.software.usual import choose_stack
from ...backends.machine.system_table import machine_numbers
from ...ir.errors import UnknownNameError, UsageError
from ...ir.plan.words import PlanWords
from ...ir.records import dataclass

if TYPE_CHECKING:
    from ...backends.machine.system import System

Given: TypeAlias = Mapping[object, object]
# Factors by which the page may move a number of the machine, and the most of any count.
LEAST, MOST = 0.1, 10.0
COUNTS: Mapping[str, tuple[int, int]] = {
    "gpus": (1, 1 << 20),
    "tp": (1, 1024),
    "pp": (1, 1024),
    "cp": (1, 1024),
    "ep": (1, 4096),
    "mbs": (1, 4096),
    "gbs": (1, 1 << 20),
    "seq": (1, 1 << 22),
}
FACTORS = ("hbm", "capacity", "inner", "outer", "clock", "price")
RECOMPUTE, ZERO = ("none", "selective", "full"), (0, 1, 2, 3)
_FLOP_PATHS = ("chip.matmul.", "chip.vector.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraggedMachine:
    """A model on a system, and by how much numbers of the system are moved."""

    model: str
    system: str
    factors: tuple[tuple[str, float], ...]

    @property
    def overrides(self) -> tuple[str, ...]:
        """Numbers of the system that are moved, as `--set` has them."""
        return tuple(
            f"{path}={number * factor:.6g}{unit_of(path)}"
            for name, factor in self.factors
            if factor != 1.0
            for path, number in plain_paths(self.system, name).items()
        )

    @property
    def moved(self) -> list[str]:
        """The same as flags."""
        return [part for text in self.overrides for part in ("--set", text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dragged(DraggedMachine):
    """A step of training: model, system and plan."""

    gpus: int
    tp: int
    pp: int
    cp: int
    ep: int
    mbs: int
    gbs: int
    seq: int
    zero: int
    recompute: str

    @classmethod
    def read(cls, said: object) -> Dragged:
        """Read what a page sent; UsageError for anything that is no name of the catalogue, or no number in its bounds.

        Names are looked up and never opened: no path of the disk and no module can be asked for.
        """
        given = known(said, ("zero", "recompute", *COUNTS))
        return cls(
            **machine_read(given),
            **{name: count_read(given, name, *ends) for name, ends in COUNTS.items()},
            zero=int(one_of(given, "zero", tuple(map(str, ZERO)))),
            recompute=one_of(given, "recompute", RECOMPUTE),
        )

    @property
    def words(self) -> PlanWords:
        """The plan, in the words of plans."""
        return PlanWords(
            num_gpus=self.gpus,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            ep=self.ep,
            micro_batch=self.mbs,
            global_batch=self.gbs,
            seq_len=self.seq,
            zero=self.zero,
            recompute=self.recompute,
        )

    @property
    def flags(self) -> list[str]:
        """The same as a command line, behind the model."""
        counts = ((name, getattr(self, name)) for name in COUNTS)
        usual = {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
        said = [part for name, value in counts if usual.get(name) != value for part in (f"--{name}", f"{value}")]
        policy = [
            *(["--zero", f"{self.zero}"] if self.zero else []),
            *(["--recompute", self.recompute] if self.recompute != "none" else []),
        ]
        return ["--system", self.system, "--stack", self.stack, *said, *policy, *self.moved]

    @property
    def stack(self) -> str:
        """The software of all points of a system, so that they can be compared: that of the widest plans."""
        return choose_stack("train", plain_system(self.system).chip.name, PlanWords(tp=2))


@lru_cache(maxsize=32)
def moved_system(name: str, overrides: tuple[str, ...], stack: str) -> System:
    """Return a system of the catalogue under a stack with numbers set anew, as `--set` sets them."""
    return load_system(name, overrides, stack)


@cache
def plain_system(name: str) -> System:
    """Return a system of the catalogue as it is."""
    return load_system(name)


@cache
def plain_paths(system: str, name: str) -> Mapping[str, float]:
    """Return `moved_paths` of a system of the catalogue."""
    return moved_paths(plain_system(system), name)


def moved_paths(system: System, name: str) -> Mapping[str, float]:
    """Return the numbers of a system that a slider moves together, by path, as they are; none where it has none."""
    known = {path: float(number) for path, number in machine_numbers(system).items()}
    levels = [path for path in known if path.startswith("network.") and path.endswith(".bandwidth")]
    chosen = {
        "hbm": ["chip.memory.hbm.bandwidth"],
        "capacity": ["chip.memory.hbm.capacity"],
        "inner": levels[:1],
        "outer": levels[1:],
        "clock": ["chip.clock", *(path for path in known if path.startswith(_FLOP_PATHS))],
        "price": [],
    }[name]
    server = system.server
    if name == "price" and server is not None and server.price_usd is not None:
        return {"server.price": float(server.price_usd)}
    return {path: known[path] for path in chosen if path in known}


def unit_of(path: str) -> str:
    """Return the unit in which a number is said.

    >>> unit_of("chip.clock"), unit_of("network.nvlink.bandwidth"), unit_of("chip.matmul.bf16")
    ('Hz', 'B/s', 'FLOP/s')
    """
    if path.startswith(_FLOP_PATHS):
        return "FLOP/s"
    return {"clock": "Hz", "bandwidth": "B/s", "capacity": "B", "price": "USD"}[path.rpartition(".")[2]]


def known(said: object, names: Iterable[str]) -> Given:
    """Return what a page sent as an object of these names, and of those of every point; errors as `Dragged.read`."""
    if not isinstance(said, Mapping):
        raise UsageError("a point of the slide rule is an object")
    allowed = {"phase", "model", "system", *FACTORS, *names}
    strange = next((str(name) for name in said if name not in allowed), None)
    if strange is not None:
        raise UnknownNameError.of("number of the slide rule", strange, allowed)
    return said


class _Machine(TypedDict):
    model: str
    system: str
    factors: tuple[tuple[str, float], ...]


def machine_read(given: Given) -> _Machine:
    """Return model, system and factors."""
    from ...frontend.huggingface.configs.models import names

    return {
        "model": one_of(given, "model", names()),
        "system": one_of(given, "system", system_names()),
        "factors": tuple((name, number_read(given, name, LEAST, MOST, 1.0)) for name in FACTORS),
    }


def one_of(given: Given, name: str, allowed: tuple[str, ...]) -> str:
    """Return a name that is one of those allowed."""
    value = str(given.get(name))
    if value not in allowed:
        raise UnknownNameError.of(name, value[:80], allowed)
    return value


def count_read(given: Given, name: str, low: int, high: int) -> int:
    """Return a whole number in its bounds."""
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{name}: a whole number from {low} to {high}")
    return value


def number_read(given: Given, name: str, low: float, high: float, usual: float | None = None) -> float:
    """Return a number in its bounds."""
    value = given.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{name}: a number from {low:g} to {high:g}")
    return float(value)
