"""Write conclusions.md: what each study concludes, from the tables of its whole grid; `make studies` runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from study import Conclude, read_table, title_of

FOLDER = Path(__file__).parent


def concluding() -> Iterator[str]:
    """Yield the names of the studies whose sentences follow from their tables."""
    for path in sorted(FOLDER.glob("ex[0-9]*.py")):
        if "def conclude(" in path.read_text(encoding="utf-8"):
            yield path.stem


def text() -> str:
    """Return the page: a part a study, its sentences, and its picture where there is one."""
    parts = ["# What the studies conclude", "Written from `tables` by `conclusions.py`; each number stands in a table."]
    for name in concluding():
        module, table = import_module(name), FOLDER / "tables" / f"{name}.csv"
        if table.exists():
            conclude: Conclude = module.conclude
            sentences = conclude(read_table(table.read_text(encoding="utf-8")))
            parts += [f"## [{title_of(module.__doc__)}]({name}.py)", "\n".join(f"- {one}." for one in sentences)]
            if (FOLDER / "pictures" / f"{name}.svg").exists():
                parts.append(f"![{name}](pictures/{name}.svg)")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    (FOLDER / "conclusions.md").write_text(text(), encoding="utf-8")
