"""Links between our own pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(str(p.relative_to(ROOT)) for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [link for link in _LINK.findall(text) if not _leads_somewhere(ROOT / page, link)] == []


def test_every_page_is_linked_from_the_overview_and_it_from_the_readme() -> None:
    readme, overview = (
        _LINK.findall((ROOT / name).read_text(encoding="utf-8")) for name in ("README.md", "docs/overview.md")
    )
    assert "docs/overview.md" in readme
    assert {p for p in PAGES if p.startswith("docs/")} <= {"docs/overview.md", *(f"docs/{link}" for link in overview)}


def test_a_broken_link_is_noticed() -> None:
    assert not _leads_somewhere(ROOT / "README.md", "docs/no-such-page.md")
    assert not _leads_somewhere(ROOT / "README.md", "README.md#no-such-heading")
    assert _leads_somewhere(ROOT / "README.md", "LICENSE")


def _leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
