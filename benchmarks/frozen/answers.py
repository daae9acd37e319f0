"""Answers: what a command prints, kept as one file, and where two of them differ."""

from __future__ import annotations

import difflib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

_FILE = "answers.json"
# What names the code that answers, and no answer.
_OF_THE_TOOL = re.compile(r'("(?:tool_version|digest)": ")[^"]*')
# Lines of a difference that are shown.
_SHOWN = 12


# Verbs whose steps run on the usual software where a command names none.
_OF_SOFTWARE = frozenset({"estimate", "search", "compile", "mixed"})


def answered(line: str) -> str:
    """Return the exit code and both streams of a command; one that names no software is of the pure machine.

    So a change of what is usual moves no answer.
    """
    from slipstick.cli import run

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(pure(line.split()))
    return f"exit code {code}\n{_plain(out.getvalue())}{err.getvalue()}"


def pure(words: list[str]) -> list[str]:
    """Return a command with the pure machine, where it would assume software.

    >>> pure("estimate gpt2 --tp 2".split())[-2:], pure("estimate gpt2 --stack vllm".split())[-2:]
    (['--stack', 'default'], ['--stack', 'vllm'])
    """
    named = {"--stack", "--engine", "serve", "--help"} & set(words)
    return words if words[0] not in _OF_SOFTWARE or named else [*words, "--stack", "default"]


def _plain(text: str) -> str:
    """Return what was printed without the version of the tool; the names of a JSON object have no order."""
    text = _OF_THE_TOOL.sub(r"\1-", text)
    return json.dumps(json.loads(text), indent=1, sort_keys=True) if text.startswith("{") else text


def write(answers: Mapping[str, str], folder: Path) -> None:
    """Keep answers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_text(json.dumps(answers, indent=1), encoding="utf-8")


def read(folder: Path) -> dict[str, str]:
    """Return what was kept."""
    found: dict[str, str] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return found


def changes(kept: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    """Yield a text for each question whose answer is another, is gone or is new.

    >>> list(changes({"a": "1", "b": "2"}, {"a": "1", "c": "3"}))
    ['gone: b', 'new: c']
    """
    for key in kept:
        if key not in found:
            yield f"gone: {key}"
        elif kept[key] != found[key]:
            lines = difflib.unified_diff(kept[key].splitlines(), found[key].splitlines(), n=0, lineterm="")
            body = [f"  {text}" for text in lines if not text.startswith(("---", "+++", "@@"))]
            more = [f"  ... {len(body) - _SHOWN} lines more"] if len(body) > _SHOWN else []
            yield "\n".join([f"changed: {key}", *body[:_SHOWN], *more])
    yield from (f"new: {key}" for key in found if key not in kept)
