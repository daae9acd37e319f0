"""Why ours differs from an oracle where it does: what is known, and what is ours to mend."""

from __future__ import annotations

from .case import Found


def reason_for(found: Found) -> str:
    """Return the reason; nothing where none is known."""
    return ""
