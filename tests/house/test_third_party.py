"""What is not ours is listed with its licence: models of the catalogue and repositories that measurements come from."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTED = set(re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", (ROOT / "THIRD_PARTY.md").read_text("utf-8"), re.MULTILINE))
TABLES = (*(ROOT / "tests/validation").glob("*.csv"), *(ROOT / "validation/training").glob("*.csv"))
# How rows name a file of a repository: its owner and name, then its path, or a pull request.
REPOSITORY = re.compile(r"([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)[:@ ]")


def test_every_family_of_the_catalogue_is_listed() -> None:
    index = json.loads((ROOT / "frontend/catalogue/index.json").read_text("utf-8"))
    assert {model["family"] for model in index.values()} <= LISTED


def test_every_repository_of_measurements_is_listed() -> None:
    assert TABLES
    found: set[str] = set()
    for path in TABLES:
        with path.open(encoding="utf-8", newline="") as rows:
            sources = [row.get("source") or "" for row in csv.DictReader(rows)]
        found |= {match[1] for source in sources if (match := REPOSITORY.match(source))}
    assert found
    assert found <= LISTED
