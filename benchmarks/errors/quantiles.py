"""Observations to bands: quantiles of one half of them, and how many of the other half lie inside.

A kind of answer is a quantity, a class of models, and what it rests on. Quantiles are weighted: a data set of n rows
weighs as much as sqrt(n) data sets of one row, for its rows err alike. They are conformal: of weights w with an
effective number m = (sum w)^2 / sum w^2 a band of a share is read as one of share (1 + 1/m), so that few rows make it
wide. A kind with fewer than LEAST rows is pooled with its neighbours; and a kind with less evidence is never narrower
than one with more.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstick.driver.uncertainty.bands import DENSE, EXPERTS, MEMORY, QUANTITIES, STEP, WITHIN, Band
from slipstick.driver.uncertainty.evidence import ChipEvidence, SoftwareEvidence

LEAST = 20
# Shares below the four ends of a band.
ENDS = (0.05, 0.25, 0.75, 0.95)
ANY = "*"
Kind = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Residual:
    """One judged row: its publication and id, its kind, and ln(measured / predicted)."""

    dataset: str
    id: str
    kind: Kind
    log: float

    @property
    def calibrates(self) -> bool:
        """Whether bands are read from it; the others judge them."""
        return hashlib.sha256(f"errors|{self.id}".encode()).digest()[-1] % 2 == 0


def bands(residuals: Sequence[Residual]) -> Mapping[Kind, Band]:
    """Return the band of every kind, from the residuals that calibrate."""
    known = [r for r in residuals if r.calibrates]
    found: dict[Kind, Band] = {}
    for quantity in (*QUANTITIES, f"{STEP}.{WITHIN}"):
        for model in (DENSE, EXPERTS):
            for software in SoftwareEvidence:
                for silicon in ChipEvidence:
                    found[quantity, model, software, silicon] = _band(known, (quantity, model, software, silicon))
    return {kind: _no_narrower(found, kind) for kind in found}


def wider(kind: Kind) -> Iterator[Kind]:
    """Yield a kind and those that stand for it where it has too few rows, the nearest first."""
    quantity, model, software, silicon = kind
    yield kind
    if quantity == MEMORY:
        yield quantity, ANY, software, ANY
        yield quantity, ANY, ANY, ANY
        return
    yield quantity, model, software, ANY
    yield quantity, ANY, software, silicon
    yield quantity, ANY, software, ANY
    yield quantity, ANY, ANY, silicon
    yield quantity, ANY, ANY, ANY


def holds(wide: Kind, kind: Kind) -> bool:
    """Whether a kind is among those that a wider one stands for."""
    return all(w in (ANY, k) for w, k in zip(wide, kind, strict=True))


def _band(known: Sequence[Residual], kind: Kind) -> Band:
    for wide in wider(kind):
        there = [r for r in known if holds(wide, r.kind)]
        if len(there) >= LEAST:
            return Band(*quantiles(there), len(there), " ".join(wide))
    return Band(-math.log(10.0), -math.log(2.0), math.log(2.0), math.log(10.0), 0, "no measurement")


def quantiles(residuals: Sequence[Residual]) -> tuple[float, float, float, float]:
    """Return the four ends of a band of residuals, a little wider than they are where these are few."""
    sizes = Counter(r.dataset for r in residuals)
    order = sorted(residuals, key=lambda r: r.log)
    weights = np.array([sizes[r.dataset] ** -0.5 for r in order])
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    reached = (np.cumsum(weights) - weights / 2.0) / weights.sum()
    levels = [0.5 + (end - 0.5) * (1.0 + 1.0 / effective) for end in ENDS]
    least, low, high, most = (float(q) for q in np.interp(levels, reached, [r.log for r in order]))
    return least, low, high, most


def _no_narrower(found: Mapping[Kind, Band], kind: Kind) -> Band:
    """The band of a kind, each half no narrower than that of any with at least as much evidence."""
    quantity, model, software, silicon = kind
    softwares, silicons = list(SoftwareEvidence), list(ChipEvidence)
    better = [
        found[quantity, model, s, c]
        for s in softwares[: softwares.index(SoftwareEvidence(software)) + 1]
        for c in silicons[: silicons.index(ChipEvidence(silicon)) + 1]
    ]
    own = found[kind]
    half, most = (max(b.half for b in better), max(b.most - b.least for b in better) / 2.0)
    # Wider on both sides alike, about where its own rows lie.
    inner, outer = max(0.0, half - own.half), max(0.0, most - (own.most - own.least) / 2.0)
    return Band(own.least - outer, own.low - inner, own.high + inner, own.most + outer, own.num_rows, own.kind)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of judging rows of a kind, the shares inside of the halves and nine tenths, and the median ends of these."""

    rows: int
    sets: int
    half: float
    most: float
    band: Band


def coverage(residuals: Sequence[Residual], known: Mapping[Kind, Band]) -> Mapping[Kind, Coverage]:
    """Return how many of the rows that judge lie inside, kind by kind and over all of each quantity."""
    found: dict[Kind, list[Residual]] = {}
    for one in residuals:
        if not one.calibrates:
            found.setdefault(one.kind, []).append(one)
            found.setdefault((one.kind[0], ANY, ANY, ANY), []).append(one)
    return {kind: _covered(of, known) for kind, of in sorted(found.items())}


def _covered(residuals: Sequence[Residual], known: Mapping[Kind, Band]) -> Coverage:
    of = [(r.log, known[r.kind]) for r in residuals]
    least, low, high, most = np.median([(b.least, b.low, b.high, b.most) for _, b in of], axis=0)
    half = float(np.mean([band.low <= log <= band.high for log, band in of]))
    nearly_all = float(np.mean([band.least <= log <= band.most for log, band in of]))
    middle = Band(float(least), float(low), float(high), float(most))
    return Coverage(len(of), len({r.dataset for r in residuals}), half, nearly_all, middle)


def differences(residuals: Sequence[Residual]) -> list[Residual]:
    """Return step residuals less the median of their data set on their chip by their software: what plans differ by."""
    groups: dict[tuple[str, Kind], list[Residual]] = {}
    for one in residuals:
        if one.kind[0] == STEP:
            groups.setdefault((one.dataset, one.kind), []).append(one)
    found = []
    for (dataset, (_, *rest)), of in groups.items():
        if len(of) >= 4:
            middle = float(np.median([r.log for r in of]))
            model, software, silicon = rest
            found += [
                Residual(dataset, r.id, (f"{STEP}.{WITHIN}", model, software, silicon), r.log - middle) for r in of
            ]
    return found
