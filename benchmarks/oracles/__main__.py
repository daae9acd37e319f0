"""`python -m benchmarks.oracles`: compare every causal language model of transformers, write the page.

Results are kept one a line as they come; `--resume` goes on where the last run stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..sweep import Sweep
from .case import Found, failed, measure
from .page import page


def _line(rows: Sequence[Found]) -> str:
    return ", ".join(f"{f.oracle}: {f.outcome}" for f in rows)


def _from_json(line: str) -> Found:
    return Found(**json.loads(line))


SWEEP = Sweep("oracles", __doc__ or "", "results/oracles.md", 240.0, measure, failed, _from_json, page, _line)

if __name__ == "__main__":
    SWEEP.main()
