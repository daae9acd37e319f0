"""The words of a running command: code of a user runs only if its name is one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import NotUnderstoodError

# None outside of a command: what calls the package is a program already.
_WORDS: ContextVar[frozenset[str] | None] = ContextVar("slipstick_typed_words", default=None)
_SEPARATORS = re.compile("[=,]")


@contextmanager
def allow_typed_code(arguments: Sequence[str]) -> Iterator[None]:
    """Let `check_typed` pass only names that stand in the arguments of a command, until the block ends.

    >>> with allow_typed_code(["search", "net.py:Net", "--loss=net.py:loss"]):
    ...     check_typed("net.py:loss")
    """
    words = {part for argument in arguments for part in (argument, *_SEPARATORS.split(argument))}
    token = _WORDS.set(frozenset(words))
    try:
        yield
    finally:
        _WORDS.reset(token)


def check_typed(name: str) -> None:
    """Refuse code that a file or the environment names.

    Args:
        name: `file.py:function` or `package.module:function`, as it was given.

    Raises:
        NotUnderstoodError: a command runs, and the name is not one of its words.
    """
    words = _WORDS.get()
    if words is not None and name not in words:
        raise NotUnderstoodError(
            f"'{name}' is code that a file or a variable names, and code runs only if it is typed; if you trust it, "
            f"type {name} as the model, or behind --draft or --loss"
        )
