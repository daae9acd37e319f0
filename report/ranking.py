"""Ranked candidates: those whose chip was measured first, ties called ties, and what each of them rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, isfinite
from typing import Generic, TypeVar

from ..driver.uncertainty.bands import Band, is_tie
from ..driver.uncertainty.evidence import ChipEvidence, Evidence
from ..ir.records import dataclass
from ..ir.units import format_usd

T = TypeVar("T")
# What a row rests on, in the words of a table.
_WORDS = {
    ChipEvidence.MEASURED: "this chip",
    ChipEvidence.SISTER: "relatives",
    ChipEvidence.MAKER: "relatives",
    ChipEvidence.NONE: "data sheet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCandidate(Generic[T]):
    """Something that is ranked.

    Attributes:
        item: what it is.
        name: as people call it.
        value: what should be small; infinite where it is not known.
        band: of ln(measured / predicted) of the value.
        evidence: what the value rests on.
        num_gpus: of equal ones, fewer come first.
        broken: how often the worst bound goes into what is needed; 0 where all are kept.
        usd: what it costs; None where it has no price.
        gpu_hours: what this is paid for.
        usd_per_gpu_hour: the price today.
        unpriced: why there are no sums, or what they leave out; empty where they are firm.
        outdated: prices that are of another machine, after numbers of this one were set.
        is_rented_out: whether there is a rental price.
    """

    item: T
    name: str
    value: float
    band: Band
    evidence: Evidence
    num_gpus: int
    broken: float = 0.0
    usd: float | None = None
    gpu_hours: float = 0.0
    usd_per_gpu_hour: float | None = None
    unpriced: str = ""
    outdated: Sequence[str] = ()
    is_rented_out: bool = True

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured on its chip."""
        return self.evidence.silicon is ChipEvidence.MEASURED

    def interval(self, form: Callable[[float], str]) -> str:
        """Return where nine of ten measurements of the value are expected, each end in a form."""
        if not isfinite(self.value):
            return "-"
        ends = self.band.around(self.value)
        return f"{form(ends.least)} to {form(ends.most)}"


def evidence_word(evidence: Evidence) -> str:
    """Return what an answer rests on in the words of a table.

    >>> from slipstick.driver.uncertainty.evidence import SoftwareEvidence
    >>> evidence_word(Evidence(ChipEvidence.MAKER, SoftwareEvidence.IDEAL))
    'relatives'
    """
    return "measured" if evidence.is_measured else _WORDS[evidence.silicon]


@dataclass(frozen=True, slots=True)
class CandidateRanking(Generic[T]):
    """Candidates, the best first; `ties` are places of those that the first may not beat."""

    candidates: Sequence[RankedCandidate[T]]
    ties: frozenset[int]

    def mark(self, place: int) -> str:
        """Return the place of a candidate as a table has it: `2=` for a tie with the first, `-` for a broken bound."""
        return "-" if self.candidates[place].broken else f"{place + 1}{'=' if place in self.ties else ''}"

    def break_even(self, place: int) -> float | None:
        """Return the dollars of a GPU-hour at which a candidate costs what the first does; None without sums."""
        first, one = self.candidates[0], self.candidates[place]
        return None if not place or first.usd is None or one.usd is None else first.usd / one.gpu_hours

    def notes(self) -> Iterator[str]:
        """Yield ties, chips that nobody measured, and prices at which the order would change."""
        if not self.candidates:
            return
        first = self.candidates[0]
        if self.ties:
            names = ", ".join(self.candidates[place].name for place in sorted(self.ties))
            yield f"= too near {first.name} to tell which is better: {names}"
        if any(not one.is_measured for one in self.candidates) and len(self.candidates) > 1:
            names = ", ".join(one.name for one in self.candidates if not one.is_measured)
            yield f"nothing was measured on the chips of {names}"
        for place, one in enumerate(self.candidates):
            price = self.break_even(place)
            if price is not None and one.usd_per_gpu_hour is not None and not first.broken:
                prices = f"{format_usd(price)}/GPU-hour (now {format_usd(one.usd_per_gpu_hour)})"
                yield f"{one.name} costs what {first.name} does at {prices}"

    def money_notes(self) -> Iterator[str]:
        """Yield what sums leave out or are not of, and who rents nothing out."""
        for one in self.candidates:
            if one.unpriced:
                said = "is not priced" if one.usd is None else "costs at least so much, without"
                yield f"{one.name} {said}: {one.unpriced}"
            yield from (f"{one.name}, no sum is of this machine: {line}" for line in one.outdated)
        without = [one.name for one in self.candidates if not one.is_rented_out]
        if without:
            yield f"no rent, prices.cloud has no price of their chips: {', '.join(without)}"


def rank(candidates: Sequence[RankedCandidate[T]], by_evidence: bool = True) -> CandidateRanking[T]:
    """Order candidates: those that keep all bounds, then those whose chip was measured, then by value and GPUs.

    `by_evidence` off leaves those that nobody measured among the others.
    """

    def worth(one: RankedCandidate[T]) -> tuple[float, bool, float, int]:
        return one.broken, by_evidence and not one.is_measured, one.value, one.num_gpus

    ordered = sorted(candidates, key=worth)
    return CandidateRanking(ordered, frozenset(_ties(ordered)))


def _ties(ordered: Sequence[RankedCandidate[T]]) -> Iterator[int]:
    """Yield places of those that the first may not beat; of none where it breaks a bound."""
    if not ordered or ordered[0].broken or not 0.0 < ordered[0].value < inf:
        return
    first = ordered[0]
    for place, one in enumerate(ordered[1:], 1):
        if not one.broken and 0.0 < one.value < inf and is_tie(first.value, one.value, first.band, one.band):
            yield place
