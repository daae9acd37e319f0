"""Results as a page of the documentation: how many are read, and why the others are not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..markdown import table
from .measure import Result

FAMILIES = {
    "node": "node tests of the onnx package (`onnx.backend.test.case.node`)",
    "light": "light models of the onnx package: networks of 2012 to 2017 with random weights",
    "pytorch-converted": "stored models of the onnx package, converted from PyTorch modules",
    "pytorch-operator": "stored models of the onnx package, one operator of PyTorch each",
    "simple": "stored models of the onnx package, simple ones",
    "shipped": "models inside of silero-vad, rapidocr, rapidocr-onnxruntime and magika, as PyPI has them",
}
_INTRODUCTION = """# Coverage of ONNX

<!-- Written by `make coverage`; a test measures some of its rows again. -->

Every model that the `onnx` package tests backends with, and models that other packages ship, read as `slipstick` reads
a file for prefill.

- **Read** means: no error, and every result has the shape and the element type that it has in the run whose data are
  stored beside the model. Element types are compared as the graph tells them apart (`uint16` counts as `int16`). Of
  shipped models no run is stored: they are read and estimated.
- **Numbers** are cases whose inputs and results are tensors of numbers. Others hold texts, sequences, or optional
  values.
- **Told** are cases in which a size depends on data: the error named the `--dim` to write, and the test gave it the
  size of the stored run.
- **Estimated** means: one pass is priced on one H100, of a static model with its own batch and length. Node tests are
  not priced. A model that only views its input in another shape takes no time, so no rate is given.
"""


def page(results: Sequence[Result]) -> str:
    """Return the whole page."""
    heading = ("models", "cases", "read", "of numbers", "read", "share", "told", "estimated")
    found = table(heading, (_row(results, family) for family in FAMILIES))
    whys = table(("why", "cases", "which"), ((why, str(len(of)), ", ".join(of)) for why, of in _reasons(results)))
    priced = table(("model", "ms"), ((f"`{r.model_type}`", f"{r.step_s * 1e3:.3f}") for r in results if _is_shown(r)))
    return (
        f"{_INTRODUCTION}\n{found}\n\n## Not read, or not estimated\n\n{whys}\n\n## One pass on one H100\n\n{priced}\n"
    )


def _is_shown(result: Result) -> bool:
    return result.family in ("light", "shipped") and result.step_s > 0


def _row(results: Sequence[Result], family: str) -> tuple[str, ...]:
    of = [r for r in results if r.family == family]
    numeric = [r for r in of if r.is_numeric]
    read, known = sum(not r.why_not for r in of), sum(not r.why_not for r in numeric)
    share = f"{known / len(numeric) * 100:.1f} %" if numeric else "-"
    told = sum(r.told > 0 and not r.why_not for r in of)
    estimated = "-" if family == "node" else str(sum(r.step_s > 0 for r in of))
    return (FAMILIES[family], str(len(of)), str(read), str(len(numeric)), str(known), share, str(told), estimated)


def _reasons(results: Sequence[Result]) -> Iterator[tuple[str, list[str]]]:
    """Yield each reason with the cases it is of, the most frequent first; names in it stand for one another."""
    found: dict[str, list[str]] = {}
    for r in results:
        why = r.why_not or (f"not estimated: {r.not_priced}" if r.not_priced else "")
        if why:
            found.setdefault(_said(why), []).append(f"`{r.model_type}`")
    yield from sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _said(why: str) -> str:
    """Return a reason without what only one case has in it."""
    first = re.sub(r"\(\S+ node '[^']*'\)", "", why.splitlines()[0])
    first = re.sub(r"^(\S+ node) '[^']*'", r"\1", first)
    first = re.sub(r"(result|input) '[^']*'", r"\1", first)
    first = re.sub(r"(: )?--dim .*", "", first)
    return first[:300]
