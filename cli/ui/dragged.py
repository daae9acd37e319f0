"""What the page asks for: names of the catalogue and numbers within bounds, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ...backends.machine.load import load_system, system_names
from ...backends.machine.system_table import machine_numbers
from ...ir.errors import UnknownNameError, UsageError
from ...ir.plan.words import PlanWords
from ...ir.records import dataclass

if TYPE_CHECKING:
    from ...backends.machine.system import System

# Factors by which the page may move a number of the machine, and the most of any count.
LEAST, MOST = 0.1, 10.0
_COUNTS = {
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


@dataclass(frozen=True, slots=True)
class Dragged:
    """A point of the slide rule: model, system, plan, and by how much numbers of the system are moved."""

    model: str
    system: str
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
    factors: tuple[tuple[str, float], ...]

    @classmethod
    def read(cls, said: object) -> Dragged:
        """Read what a page sent; UsageError for anything that is no name of the catalogue, or no number in its bounds.

        Names are looked up and never opened: no path of the disk and no module can be asked for.
        """
        from ...frontend.huggingface.configs.models import names

        if not isinstance(said, Mapping):
            raise UsageError("a point of the slide rule is an object")
        known = {"model", "system", "zero", "recompute", *_COUNTS, *FACTORS}
        strange = next((str(name) for name in said if name not in known), None)
        if strange is not None:
            raise UnknownNameError.of("number of the slide rule", strange, known)
        counts = {name: _count(said, name, *ends) for name, ends in _COUNTS.items()}
        factors = tuple((name, _factor(said, name)) for name in FACTORS)
        return cls(
            _one_of(said, "model", names()),
            _one_of(said, "system", system_names()),
            **counts,
            zero=int(_one_of(said, "zero", tuple(map(str, ZERO)))),
            recompute=_one_of(said, "recompute", RECOMPUTE),
            factors=factors,
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
    def overrides(self) -> tuple[str, ...]:
        """Numbers of the system that are moved, as `--set` has them."""
        return tuple(
            f"{path}={number * factor:.6g}{_unit(path)}"
            for name, factor in self.factors
            if factor != 1.0
            for path, number in plain_paths(self.system, name).items()
        )

    @property
    def flags(self) -> list[str]:
        """The same as a command line, behind the model."""
        counts = ((name, getattr(self, name)) for name in _COUNTS)
        usual = {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
        said = [part for name, value in counts if usual.get(name) != value for part in (f"--{name}", f"{value}")]
        policy = [
            *(["--zero", f"{self.zero}"] if self.zero else []),
            *(["--recompute", self.recompute] if self.recompute != "none" else []),
        ]
        moved = [part for text in self.overrides for part in ("--set", text)]
        return ["--system", self.system, *said, *policy, *moved]


def choices() -> dict[str, object]:
    """Return the names that a page may ask for, and of each system what its sliders move."""
    from ...frontend.huggingface.configs.models import names

    systems: dict[str, object] = {}
    for name in system_names():
        system, numbers = plain_system(name), {}
        for key in FACTORS:
            first = next(iter(plain_paths(name, key).items()), None)
            numbers[key] = None if first is None else {"value": first[1], "unit": _unit(first[0])}
        systems[name] = {"chip": system.chip.name, "numbers": numbers}
    return {"models": list(names()), "systems": systems, "recompute": list(RECOMPUTE), "zero": list(map(str, ZERO))}


@lru_cache(maxsize=32)
def moved_system(name: str, overrides: tuple[str, ...]) -> System:
    """Return a system of the catalogue with numbers set anew, as `--set` sets them."""
    return load_system(name, overrides)


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


def _unit(path: str) -> str:
    """Return the unit in which a number is said.

    >>> _unit("chip.clock"), _unit("network.nvlink.bandwidth"), _unit("chip.matmul.bf16")
    ('Hz', 'B/s', 'FLOP/s')
    """
    if path.startswith(_FLOP_PATHS):
        return "FLOP/s"
    return {"clock": "Hz", "bandwidth": "B/s", "capacity": "B", "price": "USD"}[path.rpartition(".")[2]]


def _one_of(said: Mapping[object, object], name: str, allowed: tuple[str, ...]) -> str:
    value = str(said.get(name))
    if value not in allowed:
        raise UnknownNameError.of(name, value[:80], allowed)
    return value


def _count(said: Mapping[object, object], name: str, low: int, high: int) -> int:
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{name}: a whole number from {low} to {high}")
    return value


def _factor(said: Mapping[object, object], name: str) -> float:
    value = said.get(name, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise UsageError(f"{name}: a factor from {LEAST:g} to {MOST:g}")
    return float(value)
