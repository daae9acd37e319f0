"""Files of users get in by one door: no module but the reader opens or parses what a user names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

DOORS = frozenset({"ir/text/untrusted.py", "ir/text/formats.py"})
# Calls that open a file, by the last part of their name, and those that parse one or run what is in it, by the whole.
OPENS = frozenset({"open", "read_text", "read_bytes", "fdopen", "mmap", "GzipFile", "ZipFile", "BZ2File", "LZMAFile"})
PARSES = frozenset(
    {"yaml.load", "yaml.safe_load", "yaml.compose", "yaml.parse", "json.load", "tomllib.load", "tomllib.loads"}
)
RUNS = frozenset(
    {"pickle.load", "pickle.loads", "torch.load", "marshal.loads", "np.load", "np.loadtxt", "np.genfromtxt", "eval"}
)
# These functions are the door itself.
ENTERED = frozenset({"read_text", "read_bytes"})
# Whatever else opens a file: one of the package, of the system, one that is written, or what the door has opened.
OWN: Mapping[str, Mapping[str, str]] = {
    "cli/__init__.py": {"os.open": "the null device", "Path(os.devnull).open": "the null device"},
    "cli/runs.py": {"gzip.GzipFile": "written"},
    "explore/executors/messages.py": {"pickle.loads": "of our own workers"},
    "explore/executors/on_ray.py": {"pickle.loads": "of our own workers"},
    "explore/executors/process_worker.py": {"pickle.loads": "of the process that started it"},
    "explore/executors/processes.py": {"pickle.loads": "of our own workers"},
    "explore/executors/ray_driver.py": {
        "os.fdopen": "the output of the process that it started",
        "pickle.load": "of the process that it started, over its own pipe",
        "pickle.loads": "of our own workers",
    },
    "explore/executors/ray_worker.py": {"pickle.loads": "of the process that started it"},
    "explore/reduced.py": {"pickle.loads": "of the process that started it"},
    "explore/runs/shards.py": {"Path(self.folder, _TOKEN).read_text": "a token that the search wrote, held against it"},
    "explore/runs/lock.py": {"os.open": "a lock, which is not read"},
    "explore/runs/tool.py": {"open": "code of the package"},
    "explore/trials/optuna_file.py": {"path.open": "cut off behind its last line, once it was read by the door"},
    "frontend/huggingface/configs/models.py": {
        "_resource(known).read_text": "of the package",
        "_resource('index').read_text": "of the package",
    },
    "frameworks/launch.py": {
        "Path(__file__).with_name('settings.yaml').read_text": "of the package",
        "yaml.safe_load": "of the package",
    },
    "cli/ui/server.py": {"(folder / name).read_text": "of the package"},
    "cli/ui/ui.py": {"webbrowser.open": "a page of the server's own"},
    "driver/uncertainty/bands.py": {"file.read_text": "of the package"},
    "driver/uncertainty/evidence.py": {"file.read_text": "of the package"},
    "frontend/onnx/reading.py": {"mmap.mmap": "what the door has opened"},
    "frontend/replay/archive.py": {
        "zipfile.ZipFile": "what the door has opened",
        "archive.open": "a member, of which no more than the limit is unpacked",
    },
    "ir/text/files.py": {"path.open": "written", "part.open": "written"},
    "measured/run.py": {"gzip.GzipFile": "what the door has opened"},
    "measured/traces/stream.py": {"gzip.open": "what the door has opened, in a stream"},
    "report/accuracy.py": {"file.read_text": "of the package"},
    "backends/machine/files/catalogue.py": {"(_BACKENDS / kind / f'{name}.yaml').read_text": "of the package"},
    "report/charts/draw.py": {"json.load": "of the process that started it"},
    "report/trace/chrome/writer.py": {"gzip.GzipFile": "written"},
    "validation/measure/constants_file.py": {"start.read_text": "of the package"},
    "validation/measure/device.py": {
        "Path('/proc/cpuinfo').read_text": "of the system",
        "file.read_text": "of the system",
    },
}


def _calls(tree: ast.AST) -> Iterator[str]:
    """Names of the calls that open, parse or run a file; `open` of a class of ours opens no file by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            before, _, last = name.rpartition(".")
            ours = last == "open" and (before[:1].isupper() or before in ("cls", "job", "job()", "chosen"))
            opens = last in OPENS and not (ours and not before.startswith("Path")) and name not in ENTERED
            if opens or name in PARSES | RUNS:
                yield name


def test_files_of_users_get_in_by_one_door(floors: tuple[Path, ...]) -> None:
    found = {
        str(path.relative_to(floor.parent)): set(_calls(ast.parse(path.read_text(encoding="utf-8"))))
        for floor in floors
        for path in sorted(floor.rglob("*.py"))
    }
    opening = {place: calls for place, calls in found.items() if calls and place not in DOORS}
    assert opening == {place: set(calls) for place, calls in OWN.items()}


def test_the_rule_sees_what_opens_a_file() -> None:
    text = "open(p); p.read_text(); Path(p).open(); gzip.open(p); yaml.safe_load(t); np.load(p)"
    assert list(_calls(ast.parse("Ledger.open(p); read_text(p)"))) == []
    seen = ["open", "p.read_text", "Path(p).open", "gzip.open", "yaml.safe_load", "np.load"]
    assert sorted(_calls(ast.parse(text))) == sorted(seen)
