"""Observations to bands: shares of one half of them, and how many of the other half lie inside.

A kind of answer is a quantity, a class of models, and what it rests on. Its distribution is that of its own n rows with
the weight n / (n + PRIOR), and that of the next wider kind with the rest, so that few rows lean on many and one row far
off is no end of a band. Shares are conformal: of n rows a share is read as one of share (1 + 1 / (n + PRIOR)).

A band holds the prediction. Its shares are those in the middle of the distribution where these do; where most of a kind
lies on one side of the prediction, the shares that begin, or end, there. A kind with less evidence is never narrower
than one with more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstick.driver.uncertainty.bands import DENSE, EXPERTS, Band
from slipstick.driver.uncertainty.evidence import ChipEvidence, SoftwareEvidence
from slipstick.driver.uncertainty.quantities import QUANTITIES, WITHIN

# A row of a publication of n weighs n to the power of minus this: errors within a publication are alike, and with 0 a
# large one would rule, with 1 a table of one row would count for as much.
SHARED = 0.25
# Rows that the next wider kind counts for.
PRIOR = 10
# Shares of measurements inside the half, and inside nine tenths.
HALF, MOST = 0.5, 0.9
# Rows of one publication from which what they share can be told.
LEAST_SHARED = 4
ANY = "*"
Kind = tuple[str, str, str, str]
Array = NDArray[np.float64]


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
    """Return the band of every kind from residuals, and of the differences within each."""
    known = by_kind(residuals)
    found = {
        (quantity, model, str(software), str(silicon)): band_from(known, (quantity, model, software, silicon))
        for quantity in (*QUANTITIES, *(f"{quantity}.{WITHIN}" for quantity in QUANTITIES))
        for model in (DENSE, EXPERTS)
        for software in SoftwareEvidence
        for silicon in ChipEvidence
    }
    return {kind: _no_narrower(found, kind) for kind in found}


def by_kind(residuals: Sequence[Residual]) -> Mapping[Kind, Array]:
    """Return ln(measured / predicted) of each kind, and beside each the weight of its row."""
    sizes = Counter((r.dataset, r.kind) for r in residuals)
    found: dict[Kind, list[tuple[float, float]]] = {}
    for one in residuals:
        found.setdefault(one.kind, []).append((one.log, sizes[one.dataset, one.kind] ** -SHARED))
    return {kind: np.array(rows) for kind, rows in found.items()}


def wider(kind: Kind) -> Iterator[Kind]:
    """Yield a kind and those that it leans on, the nearest first."""
    quantity, model, software, silicon = kind
    yield from (
        kind,
        (quantity, model, software, ANY),
        (quantity, ANY, software, ANY),
        (quantity, ANY, ANY, silicon),
        (quantity, ANY, ANY, ANY),
    )


def holds(wide: Kind, kind: Kind) -> bool:
    """Whether a kind is among those that a wider one stands for."""
    return all(w in (ANY, k) for w, k in zip(wide, kind, strict=True))


def band_from(known: Mapping[Kind, Array], kind: Kind) -> Band:
    """Return the band of a kind from the weighted residuals of every kind, as wide as these alone make it."""
    groups = []
    for wide in wider(kind):
        there = [rows for k, rows in known.items() if holds(wide, k)]
        if there:
            groups.append((wide, np.concatenate(there)))
    wide, first = groups[0]
    left, weights = 1.0, []
    for at, (_, rows) in enumerate(groups):
        share = left if at == len(groups) - 1 else left * len(rows) / (len(rows) + PRIOR)
        weights.append(rows[:, 1] * share / rows[:, 1].sum())
        left -= share
    logs = np.concatenate([rows[:, 0] for _, rows in groups])
    return Band(*ends(logs, np.concatenate(weights)), len(first), " ".join(wide))


def ends(logs: Array, weights: Array) -> tuple[float, float, float, float]:
    """Return least, low, high and most of weighted residuals, a little farther apart where these are few."""
    order = np.argsort(logs, kind="stable")
    logs, weights = logs[order], weights[order] / weights.sum()
    num = 1.0 / float((weights**2).sum())
    reached = np.cumsum(weights) - weights / 2.0
    at = float(np.interp(0.0, logs, reached, left=0.0, right=1.0))
    (low, high), (least, most) = (
        np.interp(_levels(min(1.0, share * (1.0 + 1.0 / num)), at), reached, logs) for share in (HALF, MOST)
    )
    return min(float(least), 0.0), min(float(low), 0.0), max(float(high), 0.0), max(float(most), 0.0)


def _levels(share: float, at: float) -> tuple[float, float]:
    """The levels of a share in the middle, moved just so far that the level of the prediction is among them.

    >>> _levels(0.5, 0.6), _levels(0.5, 0.9), _levels(0.5, 0.0)
    ((0.25, 0.75), (0.4, 0.9), (0.0, 0.5))
    """
    below = min(max((1.0 - share) / 2.0, at - share), at)
    return below, below + share


def _no_narrower(found: Mapping[Kind, Band], kind: Kind) -> Band:
    """The band of a kind, each share no narrower than that of any with at least as much evidence."""
    quantity, model, software, silicon = kind
    softwares, silicons = list(SoftwareEvidence), list(ChipEvidence)
    better = [
        found[quantity, model, s, c]
        for s in softwares[: softwares.index(SoftwareEvidence(software)) + 1]
        for c in silicons[: silicons.index(ChipEvidence(silicon)) + 1]
    ]
    own = found[kind]
    half = max(b.high - b.low for b in better) / max(own.high - own.low, 1e-9)
    most = max(b.most - b.least for b in better) / max(own.most - own.least, 1e-9)
    low, high = own.low * half, own.high * half
    return Band(min(own.least * most, low), low, high, max(own.most * most, high), own.num_rows, own.kind)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of judging rows of a kind, the shares inside the halves and nine tenths, their median, and that of the ends."""

    rows: int
    sets: int
    half: float
    most: float
    median: float
    band: Band


def coverage(residuals: Sequence[Residual]) -> Mapping[Kind, Coverage]:
    """Return how many rows of either half lie inside the bands of the other, kind by kind and over each quantity."""
    halves = [[r for r in residuals if r.calibrates == half] for half in (True, False)]
    found: dict[Kind, list[tuple[Residual, Band]]] = {}
    for known, judging in zip(map(bands, halves), reversed(halves), strict=True):
        for one in judging:
            of = one, known[one.kind]
            found.setdefault(one.kind, []).append(of)
            found.setdefault((one.kind[0], ANY, ANY, ANY), []).append(of)
    return {kind: _covered(of) for kind, of in sorted(found.items())}


def _covered(judged: Sequence[tuple[Residual, Band]]) -> Coverage:
    logs = [r.log for r, _ in judged]
    half, most = shares_inside(logs, [band for _, band in judged])
    least, low, high, top = np.median([(band.least, band.low, band.high, band.most) for _, band in judged], axis=0)
    middle = Band(float(least), float(low), float(high), float(top))
    return Coverage(len(judged), len({r.dataset for r, _ in judged}), half, most, float(np.median(logs)), middle)


def shares_inside(logs: Sequence[float], known: Sequence[Band]) -> tuple[float, float]:
    """Return how many residuals lie inside the halves, and the nine tenths, of a band each."""
    pairs = list(zip(logs, known, strict=True))
    return (
        float(np.mean([band.low <= log <= band.high for log, band in pairs])),
        float(np.mean([band.least <= log <= band.most for log, band in pairs])),
    )


def differences(residuals: Sequence[Residual]) -> list[Residual]:
    """Return residuals less the median of their publication and kind: what two answers to one question differ by."""
    groups: dict[tuple[str, Kind], list[Residual]] = {}
    for one in residuals:
        groups.setdefault((one.dataset, one.kind), []).append(one)
    found = []
    for (dataset, (quantity, *rest)), of in groups.items():
        if len(of) >= LEAST_SHARED:
            middle = float(np.median([r.log for r in of]))
            model, software, silicon = rest
            kind = (f"{quantity}.{WITHIN}", model, software, silicon)
            found += [Residual(dataset, r.id, kind, r.log - middle) for r in of]
    return found
