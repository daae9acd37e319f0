"""A server of the slide rule: what the page asks of one, as flags of `slipstick estimate --phase serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ...backends.machine.load import system_names
from ...backends.machine.software.engine_file import engine_names
from ...ir.plan.low_inference import AS_PUBLISHED, INFERENCE
from ...ir.records import dataclass
from .dragged import (
    COUNTS,
    FACTORS,
    RECOMPUTE,
    ZERO,
    Dragged,
    DraggedMachine,
    count_read,
    known,
    machine_read,
    number_read,
    one_of,
    plain_paths,
    plain_system,
    unit_of,
)

TRAIN, SERVE = "train", "serve"
LOADS, LIMITS = ("request rate", "concurrency"), ("mean", "p50", "p90", "p99")
PRECISIONS = ("none", AS_PUBLISHED, *INFERENCE)
# Counts of a server, and times of its limits in milliseconds; a limit of 0 is none.
_COUNTS = {name: COUNTS[name] for name in ("gpus", "tp", "pp", "ep")} | {
    "isl": (1, 1 << 22),
    "osl": (1, 1 << 22),
    "clients": (1, 1 << 20),
}
_MOST_RATE, _MOST_MS = 1e6, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class DraggedServer(DraggedMachine):
    """A server: its degrees, engine and precision, what requests are like and how they come, limits on latencies."""

    gpus: int
    tp: int
    pp: int
    ep: int
    isl: int
    osl: int
    clients: int
    rate: float
    load: str
    engine: str
    precision: str
    limits: str
    ttft_ms: float
    tpot_ms: float

    @classmethod
    def read(cls, said: object) -> DraggedServer:
        """Read what a page sent; errors as `Dragged.read`."""
        names = ("rate", "load", "engine", "precision", "limits", "ttft_ms", "tpot_ms", *_COUNTS)
        given = known(said, names)
        return cls(
            **machine_read(given),
            **{name: count_read(given, name, *ends) for name, ends in _COUNTS.items()},
            rate=number_read(given, "rate", 1e-3, _MOST_RATE),
            load=one_of(given, "load", LOADS),
            engine=one_of(given, "engine", engine_names()),
            precision=one_of(given, "precision", PRECISIONS),
            limits=one_of(given, "limits", LIMITS),
            ttft_ms=number_read(given, "ttft_ms", 0.0, _MOST_MS),
            tpot_ms=number_read(given, "tpot_ms", 0.0, _MOST_MS),
        )

    @property
    def said(self) -> Mapping[str, str | float]:
        """Flags and their values, without those that say what is so anyway."""
        degrees = {name: getattr(self, name) for name in ("tp", "pp", "ep") if getattr(self, name) != 1}
        share = "" if self.limits == "mean" else f"{self.limits}:"
        limits = {"ttft": self.ttft_ms, "tpot": self.tpot_ms}
        rate = int(self.rate) if self.rate.is_integer() else self.rate
        return {
            "gpus": self.gpus,
            **degrees,
            "engine": self.engine,
            **({} if self.precision == "none" else {"precision": self.precision}),
            "isl": self.isl,
            "osl": self.osl,
            **({"request_rate": rate} if self.load == LOADS[0] else {"concurrency": self.clients}),
            **{name: f"{share}{ms:g}ms" for name, ms in limits.items() if ms},
        }

    @property
    def flags(self) -> list[str]:
        """The same as a command line, behind the model."""
        said = [part for name, value in self.said.items() for part in (f"--{name.replace('_', '-')}", f"{value}")]
        return ["--phase", "serve", "--system", self.system, *said, *self.moved]

    @property
    def python(self) -> str:
        """The same as a call of Python."""
        said = "".join(f", {name}={value!r}" for name, value in self.said.items())
        moved = dict(text.split("=", 1) for text in self.overrides)
        more = f", set={moved!r}" if moved else ""
        return f"import slipstick\n\nslipstick.serve({self.model!r}, {self.system!r}{said}{more})"


Point: TypeAlias = Dragged | DraggedServer


def read_point(said: object) -> Point:
    """Read a step of training or a server, as `phase` says; errors as `Dragged.read`."""
    phase = said.get("phase", TRAIN) if isinstance(said, Mapping) else TRAIN
    served = one_of({"phase": phase}, "phase", (TRAIN, SERVE)) == SERVE
    return DraggedServer.read(said) if served else Dragged.read(said)


def choices() -> dict[str, object]:
    """Return the names that a page may ask for, and of each system what its sliders move."""
    from ...frontend.huggingface.configs.models import names

    systems: dict[str, object] = {}
    for name in system_names():
        system, numbers = plain_system(name), {}
        for key in FACTORS:
            first = next(iter(plain_paths(name, key).items()), None)
            numbers[key] = None if first is None else {"value": first[1], "unit": unit_of(first[0])}
        systems[name] = {"chip": system.chip.name, "numbers": numbers}
    return {
        "model": list(names()),
        "systems": systems,
        "recompute": list(RECOMPUTE),
        "zero": list(map(str, ZERO)),
        "load": list(LOADS),
        "limits": list(LIMITS),
        "engine": list(engine_names()),
        "precision": list(PRECISIONS),
    }
