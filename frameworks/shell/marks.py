"""Marks of what a script leaves unknown, which readers of launches know too."""

from __future__ import annotations

# Stands before and behind what only a shell could know, in the place of its value; no text of a user has it.
UNKNOWN = "\0"
# Behind the name of a variable whose value only a shell could follow.
LOST = ", which is set where only a shell can follow"
