"""The site has every page once; `make docs` builds it, with warnings as errors."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Pages that the build writes from the code.
GENERATED = ["api", "commands"]


def test_every_page_has_its_place_in_the_index() -> None:
    lists = re.findall(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = [line for text in lists for line in text.splitlines() if line and not line.startswith(":")]
    assert sorted(listed) == sorted([*GENERATED, *(page.stem for page in DOCS.glob("*.md") if page.stem != "index")])
