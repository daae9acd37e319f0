"""Defaults of one's own as click takes them: by verb and parameter, below plan files and flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...app.arguments.options import Opt
    from ...app.sources import Layer


class OwnDefaults(Mapping[str, Mapping[str, object]]):
    """Defaults by verb and parameter, read when a verb asks; `say` gets a line that tells what was read and from where.

    `layers` has the same with who said each.
    """

    def __init__(self, verbs: click.Group, say: Callable[[str], None]) -> None:
        self._verbs, self._say = verbs, say
        self.layers: dict[str, Layer] = {}

    def __getitem__(self, verb: str) -> Mapping[str, object]:
        if verb not in self.layers:
            self.layers[verb] = self._of(verb)
        return {name: one.value for name, one in self.layers[verb].items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs.list_commands(click.Context(self._verbs)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _of(self, verb: str) -> Layer:
        from ...app.plans.own_defaults import has_own_defaults, read_own_defaults

        command = self._verbs.get_command(click.Context(self._verbs), verb)
        # Flags of plans are heavy, and most people have no defaults of their own.
        if command is None or not has_own_defaults():
            return {}
        refused = ("help", "help_all", *getattr(command, "refused", ()))
        known = {word: opt for word, opt in words_of(command).items() if word not in refused}
        return read_own_defaults(verb, known, list(self), self._say)


def words_of(command: click.Command) -> Mapping[str, Opt]:
    """Return the flags of a verb as words, by their keys."""
    from .names import flag_name

    params = command.get_params(click.Context(command))
    return {flag_name(p): _word_of(p, flag_name(p)) for p in params if isinstance(p, click.Option)}


def _word_of(flag: click.Option, word: str) -> Opt:
    from ...app.arguments.options import Opt, WordKind
    from .build import WordFlag

    if isinstance(flag, WordFlag):
        return flag.opt
    kind = WordKind.TEXT if not flag.is_flag else WordKind.BOTH if flag.secondary_opts else WordKind.SWITCH
    off = flag.secondary_opts[0] if flag.secondary_opts else ""
    return Opt("", kind, tuple(flag.opts), off=off, name=str(flag.name), is_many=flag.multiple, word=word)
