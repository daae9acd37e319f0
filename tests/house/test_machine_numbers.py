"""A number of a machine is one field of its record: files, `--set`, tables, schemas and lists know it by that edit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_words import linked

ROOT = Path(__file__).parents[2]
RUN = """
import contextlib, io, json, shlex, sys
from pathlib import Path
import slipstick
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system_table import machine_numbers, tabled
from slipstick.cli import run
from slipstick.report.labels import parameter_label
assert Path(slipstick.__file__).parent == Path(sys.argv[1]), slipstick.__file__
found = {}
for name, line in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
        code = run(shlex.split(line))
    found[name] = f"{code} {text.getvalue()}"
path = sys.argv[2]
if not path.startswith("prices."):
    system = load_system("dgx-h100", [f"{path}={sys.argv[3]}"])
    found["record"] = next(number.value_si for number in system.sources if number.path == path)
    found["label"] = parameter_label(path)
    if path in machine_numbers(system):
        found["column"] = machine_numbers(tabled(system, {path: [1e9, 2e9]}))[path].tolist()
Path("found.json").write_text(json.dumps(found))
"""
# The file of the record, the line behind which the new field goes, the field, its path, a value, in base units.
CASES = {
    "chip": (
        "backends/machine/chip.py",
        '    measured_as: str = field(default="", repr=False)\n',
        '    talk_bytes_per_s: Annotated[Num | None, Key("memory.talk", "how fast it talks"), BANDWIDTH] = None\n',
        "chip.memory.talk",
        "3 GB/s",
        3e9,
    ),
    "level": (
        "backends/network/topology/level.py",
        '    protocol: str = ""\n',
        '    talk_s: Annotated[Num | None, Key("talk"), LATENCY] = None\n',
        "network.nvlink.talk",
        "3 us",
        3e-6,
    ),
    "server": (
        "backends/machine/machine.py",
        '    dram_bytes: Annotated[Num | None, Key("dram"), RESERVE] = None\n',
        '    talk_w: Annotated[Num | None, Key("talk"), POWER] = None\n',
        "server.talk",
        "3 kW",
        3e3,
    ),
    "stack": (
        "backends/machine/software/stack.py",
        "    heads_apart: bool = False\n",
        '    talk_s: Annotated[float, Key("talk"), LATENCY] = up_to_ms(5)\n',
        "stack.talk",
        "3 ms",
        3e-3,
    ),
    "price": (
        "backends/prices/ownership_schema.py",
        "    network_opex: MoneyPerTime\n",
        "    talk: MoneyPerTime | None = None\n",
        "prices.tco.talk",
        "3 USD/h",
        3.0 / 3600.0,
    ),
}


def answers(folder: Path, case: str) -> dict[str, object]:
    """What commands print of a product with one field more in one file."""
    file, before, field, path, value, _ = CASES[case]
    linked(folder / "slipstick", ROOT, Path(file))
    first, line, rest = (ROOT / file).read_text(encoding="utf-8").partition(before)
    assert line, f"{file} has no line {before!r}"
    (folder / "slipstick" / file).write_text(f"{first}{line}{field}{rest}", encoding="utf-8")
    what = "prices --set" if case == "price" else "system dgx-h100 --set"
    lines = {
        "shown": f"show {what} '{path}={value}'",
        "wrong": f"show {what} '{path}=3 zz'",
        "schema": f"schema {'system' if case == 'server' else {'level': 'network', 'price': 'prices'}.get(case, case)}",
    }
    command = [sys.executable, "-c", RUN, str(folder / "slipstick"), path, value]
    environment = {"PYTHONPATH": str(folder), "SLIPSTICK_DEBUG": "1"}
    done = subprocess.run(
        command, input=json.dumps(lines), text=True, cwd=folder, env=environment, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("case", CASES)
def test_adding_a_number_touches_one_product_file(case: str, tmp_path: Path) -> None:
    si = CASES[case][-1]
    found = answers(tmp_path, case)
    shown, wrong, schema = (str(found[name]) for name in ("shown", "wrong", "schema"))
    assert shown.startswith("0 "), shown
    assert "talk" in shown
    assert wrong.startswith("2 ")
    assert "unknown unit 'zz'" in wrong
    assert '"talk"' in schema
    if case != "price":
        assert found["record"] == pytest.approx(si)
    if case == "chip":
        assert found["label"] == "how fast it talks"
    if case in ("chip", "level"):
        assert found["column"] == [1e9, 2e9]
