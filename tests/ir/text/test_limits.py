"""Limits: what packs too much is refused, and a variable raises all of them."""

from __future__ import annotations

import gzip

import pytest

from slipstick.ir.errors import ParseError, UsageError
from slipstick.ir.text import limits as module
from slipstick.ir.text.limits import Limits, limits, too_much, unpacked


def test_what_gzip_packed_is_unpacked_in_all_its_members() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert unpacked(packed, "a") == b"one two"
    for broken in (packed[:-3], b"plain"):
        with pytest.raises(ParseError, match="a: "):
            unpacked(broken, "a")


def test_a_packed_file_unpacks_to_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "limits", lambda: Limits(document_bytes=1_000_000))
    assert len(unpacked(gzip.compress(b"\n" * 1_000_000), "a")) == 1_000_000
    with pytest.raises(ParseError, match="a: more than 1,000,000 bytes are packed in it; SLIPSTICK_LIMITS=N raises"):
        unpacked(gzip.compress(b"\n" * 1_000_001), "a")
    # So it is with many small members.
    with pytest.raises(ParseError, match="more than 1,000,000 bytes are packed"):
        unpacked(gzip.compress(b"\n" * 1_000) * 1_001, "a")


def test_a_variable_raises_all_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTICK_LIMITS", "20")
    assert limits().depth == 20 * Limits().depth
    assert limits().document_bytes == 20 * Limits().document_bytes
    for wrong in ("0", "-1", "x", "1.5", "9999999", "²"):
        monkeypatch.setenv("SLIPSTICK_LIMITS", wrong)
        with pytest.raises(UsageError, match=f"SLIPSTICK_LIMITS='{wrong}': a whole number from 1"):
            limits()
    monkeypatch.setenv("SLIPSTICK_LIMITS", "")
    assert limits() == Limits()


def test_the_error_says_how_to_raise_it() -> None:
    assert str(too_much("a.yaml:3", "too deep")) == (
        "a.yaml:3: too deep; SLIPSTICK_LIMITS=N raises all limits of files N times"
    )
