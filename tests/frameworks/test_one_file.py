"""A flag of a framework is one row of one file: with no other edit it is read, written, and part of the round trip."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slipstick
from slipstick.frameworks.launch import plain
from slipstick.frameworks.registry import VOCABULARIES
from slipstick.frameworks.rows import SettingRow
from slipstick.ir.plan.words import WORDS

# A row for a word that the framework has no flag for, by the file of the framework, behind a row that stands there.
FLAGS = {
    "megatron": ("training/megatron.py", '        SettingRow("mtp_num_layers", "--mtp-num-layers", POSITIVE),\n'),
    "vllm": ("servers/engine.py", '            SettingRow("max_num_seqs", e.seqs),\n'),
}
ROW = '        SettingRow("placement", "--rank-placement", choice({"blocks": "compact"}, idle="auto")),\n'
RUN = """
import json, sys
import slipstick
from slipstick.frameworks.export import ExportSubject
from slipstick.frameworks.registry import VOCABULARIES
from slipstick.ir.plan import PlanWords, plan_of
from pathlib import Path
assert Path(slipstick.__file__).parent == Path(sys.argv[1]), slipstick.__file__
vocabulary = VOCABULARIES[sys.argv[2]]
phase = "train" if vocabulary.trains else "decode"
plan = plan_of(PlanWords(phase=phase, num_gpus=8, tp=8, seq_len=128, kernels="fused", placement="blocks"))
subject = ExportSubject(plan=plan, model="llama-3.1-8b")
flags = dict(vocabulary.flags(subject))
launch = vocabulary.read({"rank_placement": "compact"}, {"rank_placement": "--rank-placement"}, 8)
print(json.dumps([flags.get("--rank-placement"), [line for line in vocabulary.lost(subject) if "placement" in line],
                  launch.words["placement"], launch.understood["--rank-placement"]]))
"""


@pytest.mark.parametrize("framework", FLAGS)
def test_a_flag_is_one_row(framework: str, tmp_path: Path) -> None:
    root = Path(str(slipstick.__file__)).parent
    name, behind = FLAGS[framework]
    copy = tmp_path / "slipstick"
    copy.mkdir()
    for path in root.iterdir():
        if path.name not in ("frameworks", "__pycache__", ".venv", ".git", "tests"):
            (copy / path.name).symlink_to(path)
    shutil.copytree(root / "frameworks", copy / "frameworks")
    file = copy / "frameworks" / name
    text = file.read_text(encoding="utf-8")
    assert text.count(behind) == 1
    file.write_text(text.replace(behind, behind + ROW), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(copy), framework],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == ["compact", [], "blocks", "placement blocks"]


def test_names_that_verbs_take_are_those_of_rows() -> None:
    """Other names of a word's flag mean the same word to each framework that has them."""
    words = {plain(flag): name for name, row in WORDS.items() for flag in row.word.also}
    rows = [row for one in VOCABULARIES.values() for row in one.rows if isinstance(row, SettingRow)]
    named = [(name, row.word) for row in rows for name in row.names if name in words]
    assert {words[name] for name, _ in named} >= {"tp", "pp", "cp", "ep", "mbs", "seq", "gbs", "etp"}
    assert [(name, word) for name, word in named if words[name] != word] == []
