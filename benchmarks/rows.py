"""A measured number beside the number that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Target:
    """What a value must not pass: `at_most` an upper bound, else a lower one."""

    bound: float
    at_most: bool = True

    def met_by(self, value: float) -> bool:
        """Whether a value keeps the target.

        >>> Target(2.0).met_by(1.9), Target(50_000, at_most=False).met_by(49_999)
        (True, False)
        """
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        """Print as `<= 2`."""
        return f"{'<=' if self.at_most else '>='} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result; `asked` and `met` are None where nothing was asked, `samples` is what was measured."""

    name: str
    value: float
    unit: str
    asked: str | None = None
    met: bool | None = None
    samples: tuple[float, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return the row as a JSON object."""
        return asdict(self)


def row(name: str, samples: Sequence[float], unit: str, target: Target | None = None) -> Row:
    """Return the median of the samples as a row, compared with the target.

    >>> row("help", [0.07, 0.05, 0.06], "s", Target(0.1)).value
    0.06
    """
    value = float(f"{median(samples):.4g}")
    rounded = tuple(float(f"{s:.4g}") for s in samples)
    if target is None:
        return Row(name, value, unit, samples=rounded)
    return Row(name, value, unit, str(target), target.met_by(median(samples)), rounded)
