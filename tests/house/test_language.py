"""The product speaks the field's words: phrases of our own that once stood in it do not come back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# What stood there once, and what an engineer says.
OURS = {
    r"under[ _]way": "in flight",
    r"deal(?:t|s|ing) out": "sharded, distributed",
    r"come by\b(?! once)": "ownership model",
    r"holds over": "overrides",
    r"nothing is said|may be said\b": "by default, allowed",
    r"paid at once": "capex",
    r"written off": "depreciation, depreciated",
    r"costs its maker": "manufacturing cost",
    r"with the building": "including PUE",
    r"prompts of others": "prefills of other requests, prefill interference",
    r"[Pp]rompts and answers apart": "disaggregated prefill and decode",
    r"\bits way in\b|\bthe way in\b": "request overhead",
    r"[Ll]eave with exit code": "exit with code",
    r"[Gg]o on with": "resume, continue with",
    r"whose words": "target framework",
    r"lent to messages": "SM contention",
    r"\"engine takes": "reserved by engine",
    r"alone \.\. queue": "idle .. queue",
    r"\bhire(?:s|d)?\b|\bdismiss(?:es|ed)?\b": "spawn, shut down",
    r"\bcrew\b": "worker pool",
}


def _prose(files: tuple[Path, ...], root: Path, floors: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    for path in files:
        inside = path.relative_to(root)
        shipped = path.suffix == ".py" and root / inside.parts[0] in floors
        written = path.suffix == ".md" and inside.parts[0] in {"docs", "README.md", "CONTRIBUTING.md"}
        if shipped or written:
            yield str(inside), path.read_text(encoding="utf-8")


@pytest.mark.parametrize("phrase", OURS)
def test_a_phrase_of_our_own_is_said_in_the_words_of_the_field(
    phrase: str, root: Path, files: tuple[Path, ...], floors: tuple[Path, ...]
) -> None:
    found = [
        f"{name}: {text[max(match.start() - 30, 0) : match.end() + 30]!r}"
        for name, text in _prose(files, root, floors)
        for match in re.finditer(phrase, text)
    ]
    assert not found, f"say '{OURS[phrase]}':\n" + "\n".join(found)
