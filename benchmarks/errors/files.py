"""The files of the error model: what was seen of each row, what is backed by it, and the bands."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from slipstick.backends.machine.files.catalogue import names, read_file
from slipstick.benchmarks.errors.observe import TABLES, Observed
from slipstick.benchmarks.errors.quantiles import (
    Kind,
    Residual,
    band_from,
    bands,
    by_kind,
    coverage,
    differences,
    shares_inside,
)
from slipstick.driver.uncertainty.bands import DENSE, EXPERTS, Band
from slipstick.driver.uncertainty.evidence import ChipEvidence, SoftwareEvidence, silicon_named, software_of
from slipstick.driver.uncertainty.quantities import QUANTITIES
from slipstick.report.columns import in_columns

PACKAGE = Path("backends/calibration")
RESIDUALS, EVIDENCE, ERRORS = TABLES / "bands" / "residuals.csv", PACKAGE / "evidence.csv", PACKAGE / "errors.csv"
_EVIDENCE = ("table", "model", "chip", "design", "software", "precision", "quantity", "rows", "judged", "median", "p90",
             "failed", "why")  # fmt: skip
_RESIDUALS = ("dataset", "id", "quantity", "model", "software", "silicon", "log")


def write_evidence(seen: Iterable[Observed], path: Path = EVIDENCE) -> None:
    """Write what is measured of each model, chip, software and precision; rows as if unseen do not count."""
    groups: dict[tuple[str, ...], list[Observed]] = {}
    designs = designs_of_chips()
    for one in seen:
        # Of rows that only say whether something ran there is nothing to miss.
        is_label = one.measured is None and not one.reason
        if one.level is None and one.silicon is None and (one.chip or one.software) and not is_label:
            model = one.model.removesuffix(".json").rpartition("/")[2]
            key = (
                one.table,
                model,
                one.chip,
                designs.get(one.chip, ""),
                one.software,
                one.precision.lower(),
                one.quantity,
            )
            groups.setdefault(key, []).append(one)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_EVIDENCE)
        writer.writerows([*key, *_summary(of)] for key, of in sorted(groups.items()))


def designs_of_chips() -> Mapping[str, str]:
    """Return the design of each chip of the catalogue that shares its own with others."""
    trees = [read_file("chips", name).tree for name in names("chips")]
    return {str(tree["name"]): str(tree.get("design", "")) for tree in trees}


def _summary(of: Sequence[Observed]) -> list[str]:
    has = [one for one in of if one.measured is not None and one.part != "excluded"]
    judged = [one for one in has if one.part == "judged"]
    sizes = [abs(one.predicted / one.measured - 1.0) for one in judged or has if one.measured]
    median, p90 = np.quantile(sizes, [0.5, 0.9]) if sizes else (0.0, 0.0)
    failed = [one for one in of if one.measured is None or one.part == "excluded"]
    why = Counter(one.reason for one in failed).most_common(1)
    reason = why[0][0].partition("; ")[0] if why else ""
    return [str(len(has)), str(len(judged)), f"{median:.4f}", f"{p90:.4f}", str(len(failed)), reason]


def residuals_of(seen: Iterable[Observed]) -> list[Residual]:
    """Return the residuals of judged rows of whole answers, by what each prediction rested on."""
    found = []
    designs = designs_of_chips()
    for one in seen:
        if one.part == "judged" and one.measured is not None and one.quantity in QUANTITIES:
            silicon = one.silicon or silicon_named(
                one.chip, designs.get(one.chip, ""), kernels_only=one.level is not None, quantity=one.quantity
            )
            software = one.level or software_of(one.software, one.chip, one.quantity)
            kind = (one.quantity, EXPERTS if one.experts else DENSE, str(software), str(silicon))
            found.append(Residual(one.dataset, one.id, kind, math.log(one.measured / one.predicted)))
    return found


def write_residuals(residuals: Iterable[Residual], path: Path = RESIDUALS) -> None:
    """Write residuals, a line each."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_RESIDUALS)
        writer.writerows([r.dataset, r.id, *r.kind, f"{r.log:.4f}"] for r in residuals)


def read_residuals(path: Path = RESIDUALS) -> list[Residual]:
    """Return the residuals that were written."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Residual(row["dataset"], row["id"], (row["quantity"], row["model"], row["software"], row["silicon"]),
                     float(row["log"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def bands_of(residuals: Sequence[Residual]) -> Mapping[Kind, Band]:
    """Return the bands of all quantities, and of differences between runs of one publication, from half of the rows."""
    return bands([r for r in (*residuals, *differences(residuals)) if r.calibrates])


def write_errors(known: Mapping[Kind, Band], path: Path = ERRORS) -> None:
    """Write bands, a line each."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("quantity", "model", "software", "silicon", "rows", "least", "low", "high", "most", "kind"))
        writer.writerows(
            [
                *kind,
                str(band.num_rows),
                *(f"{end + 0.0:.4f}" for end in (band.least, band.low, band.high, band.most)),
                band.kind,
            ]
            for kind, band in known.items()
        )


def coverage_table(residuals: Sequence[Residual]) -> str:
    """Return how many rows lie inside the bands of the half that they are not in, as a table of text."""
    lines = [["quantity", "model", "software", "chip", "rows", "sets", "median", "in 50 %", "in 90 %", "50 %", "90 %"]]
    for (quantity, model, software, silicon), one in coverage([*residuals, *differences(residuals)]).items():
        lines.append(
            [quantity, model, software, silicon, str(one.rows), str(one.sets), f"{math.exp(one.median):.2f}",
             f"{one.half:.0%}", f"{one.most:.0%}", f"{math.exp(one.band.low):.2f} .. {math.exp(one.band.high):.2f}",
             f"{math.exp(one.band.least):.2f} .. {math.exp(one.band.most):.2f}"]
        )  # fmt: skip
    return in_columns(lines)


def unseen_table(residuals: Sequence[Residual]) -> str:
    """Return, as text, how often rows of a publication lie inside bands of all others, the mean over publications.

    Of rows whose chip and software are measured, where other publications have such rows; a publication counts once.
    """
    lines = [["quantity", "publications", "rows", "in 50 %", "in 90 %"]]
    own = [r for r in residuals if r.kind[2:] == (SoftwareEvidence.MEASURED, ChipEvidence.MEASURED)]
    for quantity in QUANTITIES:
        shares, rows = [], [r for r in own if r.kind[0] == quantity]
        for dataset in sorted({r.dataset for r in rows}):
            others = by_kind([r for r in residuals if r.kind[0] == quantity and r.dataset != dataset])
            judged = [r for r in rows if r.dataset == dataset]
            if any(kind[2:] == judged[0].kind[2:] for kind in others):
                known = {kind: band_from(others, kind) for kind in {r.kind for r in judged}}
                shares.append(shares_inside([r.log for r in judged], [known[r.kind] for r in judged]))
        if shares:
            half, nearly_all = np.mean(shares, axis=0)
            lines.append([quantity, str(len(shares)), str(len(rows)), f"{half:.0%}", f"{nearly_all:.0%}"])
    return in_columns(lines)
