"""On a terminal of 80 columns no line is wider, and none is cut inside a word."""

import io
import sys
from subprocess import CompletedProcess

import pytest

from slipstick.cli import VERBS, run

STEP = "--system dgx-h100 --gpus 8 --tp 8 --seq 2048 --gbs 8"
# Each verb's usual table, reduced to a question that is answered at once.
USUAL = {
    "choose": "gpt2 --system dgx-h100,dgx-b200 --tokens 1B --gpus 8 --seq 512 --gbs 64 --tp 1 --pp 1 --cp 1 -q",
    "cost": "dgx-h100 --gpus 1024",
    "design": "study --node N7,N5 --area 826mm2 --power 400W --unit a100 --memory hbm2e",
    "doctor": "",
    "estimate": f"llama-3.1-8b {STEP}",
    "list": "models",
    "mixed": "gpt2 --stages dgx-h100:1,dgx-a100-80gb:1 --gpus 16 --seq 512 --gbs 64",
    "posttrain": "gpt2 --system dgx-h100 --gpus 8 --prompts 8 --group 2 --max-tokens 256 --isl 64 --osl 64 -q",
    "recompute": "gpt2 --system dgx-h100 --gpus 8 --seq 512 --gbs 64",
    "runs": "list",
    "search": "gpt2 --system dgx-h100 --gpus 8 --seq 512 --gbs 8 --tp 1 --pp 1 --cp 1 --zero 1 --no-ledger -q",
    "show": "system dgx-h100",
    "size": "llama-3.1-8b --system dgx-h100,dgx-b200 --target-rps 10 --isl 100 --osl 20 --tp 1 --pp 1 --disagg off -q",
    "support": "H100-SXM5-80GB llama",
    "sweep": "none --node N7,N5,N3 --die-area 400,600mm2 --power-density 0.9W/mm2 --gpus 1024 -q",
    "topologies": "gpt2 --system dgx-h100 --gpus 64 --seq 512 --gbs 64 --topologies fat_tree=1,torus -q",
    "trace": "gpt2 --coverage",
    "validate": "tests/validation/elementwise.csv --where accelerator=A40-48GB -q",
}
MORE = (
    *(f"list {kind}" for kind in ("systems", "chips", "stacks", "engines", "nodes", "memories", "d2d", "units")),
    *(f"list {kind}" for kind in ("schedules", "precisions", "metrics", "passes", "ops", "tp-plans", "prices")),
    *(f"estimate llama-3.1-8b {STEP} --explain {what}" for what in ("step_time_s", "provenance", "peak_mem_bytes")),
    "estimate llama-3.1-8b --system dgx-h100 --phase serve --isl 1000 --osl 200 --concurrency 32",
    "cost dgx-h100 --breakdown package",
    "design optimise gpt2 --node N5 --area 814mm2 --power 700W --gpus 8 --seq 512 --gbs 8 --tp 1 --pp 1 -q",
    "cost dgx-h100 --explain usd_per_gpu_hour",
    "show engine vllm",
)
# Their answer is a file, a page, a script or help.
NO_TABLE = {"calibrate", "compare", "compile", "completion", "export", "help", "import", "report", "schema", "ui"}


class Terminal(io.StringIO):
    """A screen that keeps what it shows."""

    def isatty(self) -> bool:
        return True


def shown(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> CompletedProcess[str]:
    screen = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", screen)
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("NO_COLOR", "1")
        code = run(command.split())
    return CompletedProcess(command, code, screen.getvalue(), "")


def test_every_verb_is_looked_at() -> None:
    assert set(USUAL) | NO_TABLE == set(VERBS)


@pytest.mark.parametrize("command", [*(f"{verb} {words}" for verb, words in USUAL.items()), *MORE])
def test_no_line_is_wider_than_the_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (shown(command, columns, monkeypatch) for columns in (80, 3000))
    assert narrow.returncode == wide.returncode == 0
    # A name that is longer than the screen stays whole on a line of its own.
    assert [line for line in narrow.stdout.splitlines() if len(line) > 80 and len(line.split()) > 1] == []
    # A list without spaces may break behind its commas.
    words = set(wide.stdout.replace(",", ", ").split())
    assert {word for word in narrow.stdout.replace(",", ", ").split() if word not in words} == set()
