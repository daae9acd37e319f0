"""Wildcards over module paths against the standard library's."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.plan.training.wildcards import matches


@given(st.text("ab.", max_size=8), st.text("ab.*?[]", max_size=8))
def test_a_path_matches_where_fnmatch_says_so(path: str, pattern: str) -> None:
    assert matches(path, pattern) == fnmatchcase(path, pattern)


@given(st.lists(st.text("ab", max_size=2), min_size=1, max_size=5), st.data())
def test_stars_stand_for_anything(pieces: list[str], data: st.DataObject) -> None:
    between = [data.draw(st.text("ab.", max_size=3)) for _ in pieces[1:]]
    path = pieces[0] + "".join(gap + piece for gap, piece in zip(between, pieces[1:], strict=True))
    assert matches(path, "*".join(pieces))
