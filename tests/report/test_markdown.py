"""No text of an answer is live in Markdown: every text field of every answer, poisoned, is read back as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from slipstick.cli import run
from slipstick.driver.metrics import METRICS
from slipstick.ir.errors import SlipstickError
from slipstick.ir.text.shown import code_block, markdown_code, markdown_text
from slipstick.report.compare.compare_text import comparison_markdown
from slipstick.report.compare.comparison import compare
from slipstick.report.compare.gates import judged
from slipstick.report.compare.saved import saved
from slipstick.report.results.documents import SavedResult

POISON = "x](http://e/) ![a](http://e/q.png) @org/team #1 www.e.com `` ``` <img src=q> \u202e|\n\n# H1\n\n```\n- [ ] a"
JOBS: Mapping[str, Sequence[str]] = {
    "train": ("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--zero", "1", "--gbs", "8"),
    "serve": (
        "estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve", "--tp", "1", "--isl", "100", "--osl",
        "50", "--concurrency", "4",
    ),
    "cost": ("cost", "dgx-h100"),
}  # fmt: skip
READER = MarkdownIt("gfm-like", {"linkify": False, "html": True})
# What a live text would be: a link, a picture, HTML, a task or a rule of its own.
LIVE = {"link_open", "image", "html_inline", "html_block", "hr"}


@cache
def tokens(text: str) -> tuple[Token, ...]:
    found = READER.parse(text)
    return tuple(inner for token in found for inner in (token, *(token.children or ())))


def shape(text: str) -> list[str]:
    """Return the kinds of the tokens of a text but the ends of lines in it."""
    return [token.type for token in tokens(text)]


def plain(text: str) -> str:
    """Return all that a text says outside of code."""
    return "\n".join(token.content for token in tokens(text) if token.type == "text")


def assert_dead(text: str) -> None:
    assert LIVE.isdisjoint(shape(text))
    assert not re.search(r"[@#]\w|://|www\.", plain(text))
    assert "\u202e" not in text


def texts(document: object) -> list[tuple[str | int, ...]]:
    """Return the path of every text of a document, of lists of alike the first."""
    found = {
        tuple("*" if isinstance(key, int) else key for key in path): path for path in reversed(list(_texts(document)))
    }
    return list(found.values())


def _texts(tree: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, below in pairs:
        yield from ([(*path, key)] if isinstance(below, str) else _texts(below, (*path, key)))


def poisoned(tree: object, path: Sequence[str | int]) -> object:
    made = deepcopy(tree)
    inner = made
    for key in path[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[path[-1]] = POISON  # type: ignore[index]
    return made


def answered(job: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Return the answer to a job as a document."""
    assert run([*JOBS[job], "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def answer_of(document: object) -> str:
    return SavedResult(documents={"a.json": document}).markdown()  # type: ignore[dict-item]


def is_taken(read: Callable[[], object]) -> bool:
    """Whether a document is read; a word of a list is refused where another text stands for it."""
    try:
        read()
    except SlipstickError:
        return False
    return True


@pytest.mark.parametrize("job", JOBS)
def test_no_text_of_a_saved_answer_is_live(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(job, capsys)
    usual = SavedResult(documents={"a.json": document}).markdown()
    whole: object = document
    paths = texts(document)
    taken = [path for path in paths if path != ("schema",) and is_taken(partial(answer_of, poisoned(document, path)))]
    assert len(taken) > len(paths) / 2
    for path in taken:
        whole = poisoned(whole, path)
    found = answer_of(whole)
    assert_dead(found)
    assert "\u200borg" in found
    assert shape(found).count("heading_open") == shape(usual).count("heading_open")
    assert shape(found).count("table_open") == shape(usual).count("table_open")


def test_no_text_of_a_comparison_is_live(capsys: pytest.CaptureFixture[str]) -> None:
    document = answered("train", capsys)
    usual = saved(json.dumps(document), "a.json")
    whole: object = document
    for path in texts(document):
        if is_taken(partial(saved, json.dumps(poisoned(document, path)), POISON)):
            whole = poisoned(whole, path)
    found = compare(usual, saved(json.dumps(whole), POISON))
    text = comparison_markdown(found, judged(["step_time_s>+3%"], found), 0.001)
    assert_dead(text)
    assert "\u200borg" in text
    assert {"heading_open", "fence"}.isdisjoint(shape(text))


@given(st.lists(st.sampled_from([*"ab1 \n#-+=*_`~<>[]()!@|&:/.\\", "\u202e", "\x1b", "1. ", "://", "www."])))
def test_any_text_is_read_back_as_itself(parts: Sequence[str]) -> None:
    text = "".join(parts)
    wanted = re.sub(r"\s+", " ", text).strip()
    for line in (markdown_text(text), f"- {markdown_text(text)}", f"| a |\n| --- |\n| {markdown_text(text)} |"):
        kinds = set(shape(line)) - {"softbreak"}
        assert kinds <= {
            "paragraph_open", "paragraph_close", "inline", "text", "text_special", "bullet_list_open",
            "bullet_list_close", "list_item_open", "list_item_close", "table_open", "table_close", "thead_open",
            "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open", "th_close", "td_open",
            "td_close",
        }, (line, kinds)  # fmt: skip
    assert "\n" not in markdown_text(text)
    if wanted and not re.search(r"[\x00-\x1f\u202e]", wanted):
        said = "".join(token.content for token in tokens(markdown_text(text)) if token.type in ("text", "text_special"))
        assert re.sub(r"\s+", " ", said.replace("\u200b", "")).strip() == wanted
    assert {"code_inline"} >= set(shape(markdown_code(text))) - {"paragraph_open", "paragraph_close", "inline"}
    block = tokens("\n".join(code_block(text, "sh")))
    assert [token.type for token in block] == ["fence"]


def test_metrics_read_as_they_did() -> None:
    for metric in METRICS.values():
        assert markdown_text(metric.label) == metric.label
