"""A word of a plan is one field of the table: with no other edit every verb, file and report knows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TABLE, BEFORE = Path("ir/plan/words.py"), "    published_of: "
WORD = """    chatter: Annotated[str, Word(
        "How much ranks talk.", choices=("low", "high"), noun="kind of chatter", also=("--chat",),
    )] = "low"
    talkers: Annotated[int, Word("How many ranks talk.", least=1)] = 1
"""
GRAPH = Path(__file__).parents[1] / "golden" / "tiny-llama.train.graph"
MODEL = f"{GRAPH} --system dgx-h100 --seq 128 --quiet"
FEW = "--gpus 2 --gbs 4 --tp 2 --sp --zero 0 --recompute none --mbs 1 --no-ledger"
# Command lines, run one behind the other in a folder; what each printed is kept under its name.
LINES = {
    "help": "estimate --help-all",
    "plan": "schema plan",
    "space": "schema space",
    "wrong": f"estimate {MODEL} --chatter hihg",
    "small": f"estimate {MODEL} --talkers 0",
    "usual": f"estimate {MODEL} --tp 2 --format json -o usual.json",
    "typed": f"estimate {MODEL} --tp 2 --chat high --talkers 3 --format json -o typed.json",
    "read": f"estimate {MODEL} --plan asked.yaml --format json -o read.json",
    "compare": "compare usual.json typed.json",
    "varied": f"search {MODEL} {FEW} --vary chatter=low,high --talkers 3 --best-plan varied.yaml",
    "found": f"search {MODEL} {FEW} --space asked.space --best-plan found.yaml",
    **{name: f"export {MODEL} --chatter high --to {name}" for name in ("megatron", "torchtitan")},
    "deepspeed": f"export {MODEL.removesuffix('--quiet')} --chatter high --to deepspeed",
    "vllm": f"export {MODEL.replace('llama.train', 'llama.decode')} --phase decode --chatter high --to vllm",
}
RUN = """
import contextlib, io, json, shlex, sys
from pathlib import Path
import slipstick
from slipstick.cli import run
assert Path(slipstick.__file__).parent == Path(sys.argv[1]), slipstick.__file__
found = {}
for name, line in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
        code = run(shlex.split(line))
    found[name] = f"{code} {text.getvalue()}"
Path("found.json").write_text(json.dumps(found))
"""


def linked(to: Path, root: Path, edited: Path) -> None:
    """Lay a folder out as another is, by links to what is in it, without one file of it."""
    to.mkdir()
    first, *rest = edited.parts
    for path in root.iterdir():
        if path.name == first and rest:
            linked(to / path.name, path, Path(*rest))
        elif path.name not in (edited.name, "__pycache__"):
            (to / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands print of a product whose table has one word more."""
    root, where = Path(__file__).parents[2], tmp_path_factory.mktemp("words")
    linked(where / "slipstick", root, TABLE)
    before, line, after = (root / TABLE).read_text(encoding="utf-8").partition(BEFORE)
    (where / "slipstick" / TABLE).write_text(f"{before}{WORD}{line}{after}", encoding="utf-8")
    (where / "asked.yaml").write_text("tp: 2\nchatter: high\ntalkers: 3\n", encoding="utf-8")
    (where / "asked.space").write_text("chatter: high\ntalkers: [2, 3]\n", encoding="utf-8")
    command = [sys.executable, "-c", RUN, str(where / "slipstick")]
    environment = {**os.environ, "PYTHONPATH": str(where), "SLIPSTICK_DEBUG": "1"}
    subprocess.run(command, input=json.dumps(LINES), text=True, cwd=where, env=environment, check=True)
    files = {path.name: path.read_text(encoding="utf-8") for path in where.iterdir() if path.is_file()}
    return {**files, **json.loads(files["found.json"])}


def test_a_word_is_a_flag_by_all_its_names(found: dict[str, str]) -> None:
    assert "--chatter, --chat" in found["help"]
    assert "How much ranks talk." in found["help"]
    assert found["wrong"].startswith("2 ")
    assert "'hihg' is not allowed; did you mean 'high'?" in found["wrong"]
    assert found["small"] == "2 error: talkers=0: 1 or more\n"


def test_schemas_have_a_word(found: dict[str, str]) -> None:
    plan, space = (json.loads(found[kind].removeprefix("0 "))["properties"] for kind in ("plan", "space"))
    assert plan["chatter"] == {"enum": ["low", "high"], "description": "How much ranks talk."}
    assert plan["talkers"] == {"type": "integer", "description": "How many ranks talk."}
    assert space["chatter"]["description"] == "How much ranks talk."


def test_a_report_has_a_word_as_it_was_typed_or_read_from_a_file(found: dict[str, str]) -> None:
    typed, read, usual = (json.loads(found[f"{name}.json"]) for name in ("typed", "read", "usual"))
    assert (typed["inputs"]["plan"]["chatter"], typed["inputs"]["plan"]["talkers"]) == ("high", 3)
    assert read == typed
    assert usual["inputs"]["plan"] == {**typed["inputs"]["plan"], "chatter": "low", "talkers": 1}


def test_two_reports_that_differ_in_a_word_say_so(found: dict[str, str]) -> None:
    lines = [line.split() for line in found["compare"].splitlines()]
    assert ["plan.chatter", "low", "high"] in lines
    assert ["plan.talkers", "1", "3"] in lines


def test_a_search_varies_a_word_and_writes_it_into_the_file_of_its_best_plan(found: dict[str, str]) -> None:
    assert "2 candidates of 2 families" in found["varied"]
    assert all(f"chatter={word}" in found["varied"] for word in ("low", "high"))
    assert "differs: chatter low, not high" in found["varied"]
    # Without a formula for it all its values are worth the same, and the first is the best.
    assert "chatter" not in found["varied.yaml"]
    assert "talkers: 3\n" in found["varied.yaml"]
    assert "talkers=2" in found["found"]
    assert "chatter: high\ntalkers: 2\n" in found["found.yaml"]


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed", "vllm"])
def test_a_framework_that_has_no_such_word_says_that_it_leaves_it_out(found: dict[str, str], framework: str) -> None:
    assert "cannot be said: chatter high: there is no word for it" in found[framework]
    assert "talkers" not in found[framework]
