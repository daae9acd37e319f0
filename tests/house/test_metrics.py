"""A metric is one row of a table: besides the model that gives its number, no other edit is needed."""

import json
import subprocess
import sys
from pathlib import Path

from .test_words import linked

TABLE, BEFORE = Path("driver/metrics.py"), "_ALL = (\n"
METRIC = '    Metric("chatter_s", "chatter", "s", "how long ranks talk", "more"),\n'
RUN = """
import contextlib, io, json, sys
from pathlib import Path
import numpy as np
import slipstick
from slipstick.cli import run
from slipstick.driver.metrics import format_metric
from slipstick.explore.goals import Goal, goals_of
from slipstick.report.search.front import Front
from slipstick.report.search.front_table import front_table
assert Path(slipstick.__file__).parent == Path(sys.argv[1]), slipstick.__file__
known = ["chatter_s", "step_time_s"]
goals = goals_of(["chatter_s", "step_time_s"], known)
columns = {"chatter_s": np.array([1.0, 3.0]), "step_time_s": np.array([2.0, 2.0])}
front = Front.of(goals, ["quiet", "loud"], columns)
found = {
    "signs": [goal.sign for goal in goals],
    "turned": str(goals_of(["-chatter_s"], known)[0]),
    "best": front.best.tolist(),
    "table": front_table(front),
    "value": format_metric("chatter_s", 3.0),
}
with contextlib.redirect_stdout(io.StringIO()) as text:
    found["code"] = run(["show", "metric", "chatter_s"])
found["shown"] = text.getvalue()
Path("found.json").write_text(json.dumps(found))
"""


def test_a_metric_of_the_table_is_a_goal_a_column_and_a_word_with_no_other_edit(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    linked(tmp_path / "slipstick", root, TABLE)
    before, line, after = (root / TABLE).read_text(encoding="utf-8").partition(BEFORE)
    (tmp_path / "slipstick" / TABLE).write_text(f"{before}{line}{METRIC}{after}", encoding="utf-8")
    command = [sys.executable, "-c", RUN, str(tmp_path / "slipstick")]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, check=True, capture_output=True)
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["signs"] == [-1.0, 1.0]
    assert found["turned"] == "-chatter_s"
    assert found["best"] == [1]
    assert "chatter (more)" in found["table"]
    assert found["value"] == "3 s"
    assert found["code"] == 0
    assert "how long ranks talk" in found["shown"]
