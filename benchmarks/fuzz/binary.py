"""Hostile archives of torch.export and reports of Nsight Systems: trees in a zip, tables of SQLite."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from .mutate import Still, Tree, bred, changed, flipped, times

_NAMES = (
    "aten::save", "torch.ops.aten.save.default", "os.system", "builtins.eval", "operator.attrgetter",
    "_operator.getitem", "torch.ops.aten.from_file.default", "torch.ops.prim.PythonOp",
    "x')\rimport os; os.system('id')\r#", "__import__",
    "torch.ops.higher_order.cond", "torch.ops.aten.mm.default", "torch.ops.aten.add.Tensor",
)  # fmt: skip
_PATHS = ("../../../../tmp/evil", "/etc/passwd", "..\\..\\x", "a" * 5000, "\x00", "model/models/../../x.json", "x.pkl")
_CELLS: tuple[object, ...] = (0, -1, 2**62, -(2**63), None, "x", 1.5, float("inf"), b"\x00", "<script>", "\x1b[31m", "")
_SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
    globalPid INT, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
"""
_PROCESS = 7 << 24
_ROWS: dict[str, Sequence[Sequence[object]]] = {
    "StringIds": [[0, "sm90_gemm"], [1, "ncclDevKernel_AllReduce"]],
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        [1000 * step + at, 1000 * step + at + 200, 0, 7, 10 * step + link, _PROCESS, link % 2, 0]
        for step in range(3)
        for link, at in ((1, 100), (2, 400), (3, 700))
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        [1000 * step + at - 5, 1000 * step + at - 4, _PROCESS + 1, 10 * step + link, 0]
        for step in range(3)
        for link, at in ((1, 100), (2, 400), (3, 700))
    ],
    "NVTX_EVENTS": [
        *(
            list[object]((1000 * step, 1000 * step + 1000, 59, f"iteration {step}", None, _PROCESS + 1))
            for step in range(3)
        ),
        [90, 98, 59, "aten::mm, op_id = 3, sizes = [[2, 3], [3, 4]]", None, _PROCESS + 1],
    ],
}


@cache
def _exported() -> tuple[tuple[str, bytes], ...]:
    """The files of an exported model of a few operators."""
    import torch
    from torch import Tensor, nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix, self.norm = nn.Embedding(64, 32), nn.Linear(32, 32), nn.LayerNorm(32)

        def forward(self, ids: Tensor) -> Tensor:
            first, second = self.mix(self.embed(ids)).chunk(2, -1)
            x = torch.cat([second, first], -1).unsqueeze(1)
            x = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).squeeze(1)
            return self.norm(x + nn.functional.gelu(x, approximate="tanh"))  # type: ignore[no-any-return]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = io.BytesIO()
        sizes = ({0: torch.export.Dim("b"), 1: torch.export.Dim("s", max=4096)},)
        ids = torch.zeros(2, 16, dtype=torch.int64)
        torch.export.save(torch.export.export(Small(), (ids,), dynamic_shapes=sizes), packed)
    with zipfile.ZipFile(packed) as archive:
        return tuple((name, archive.read(name)) for name in archive.namelist())


def exported(rng: random.Random) -> bytes:
    """Return an archive of torch.export whose graph, files or bytes are wrong."""
    files = dict(_exported())
    kind = 1.0 if isinstance(rng, Still) else rng.random()
    name = next(name for name in files if name.endswith("models/model.json"))
    if kind < 0.8:
        files[name] = json.dumps(_edited(rng, json.loads(files[name]))).encode()
    elif kind < 0.9:
        other = rng.choice(list(files))
        files[rng.choice(_PATHS)] = files.pop(other) if rng.random() < 0.5 else files[other]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    return flipped(rng, packed.getvalue()) if kind >= 0.9 else packed.getvalue()


def _edited(rng: random.Random, tree: Tree) -> Tree:
    """Change nodes of the graph, as often as all the rest, which is longer."""
    kind = rng.random()
    if not isinstance(tree, dict) or kind < 0.15:
        return changed(rng, tree)
    if kind < 0.45:
        return bred(rng, tree, [tree])
    module = tree["graph_module"]
    assert isinstance(module, dict)
    graph = module["graph"]
    assert isinstance(graph, dict)
    part = rng.choice(["nodes", "nodes", "nodes", "tensor_values", "inputs", "outputs"])
    nodes = graph["nodes"]
    assert isinstance(nodes, list)
    if rng.random() < 0.25:
        node = rng.choice(nodes)
        assert isinstance(node, dict)
        node["target"] = rng.choice(_NAMES)
    else:
        graph[part] = changed(rng, graph[part], _NAMES)
    return tree


def profiled(rng: random.Random, path: Path) -> None:
    """Write a report of Nsight Systems with wrong cells, rows, tables or bytes."""
    path.unlink(missing_ok=True)
    rows = {table: [[*row] for row in found] for table, found in _ROWS.items()}
    schema = _SCHEMA
    for _ in range(times(rng, [1, 1, 2, 5])):
        table = rng.choice(list(rows))
        kind = rng.random()
        if kind < 0.7 and rows[table]:
            row = rng.choice(rows[table])
            row[rng.randrange(len(row))] = rng.choice(_CELLS)
        elif kind < 0.8:
            rows[table] = []
        elif kind < 0.9:
            schema = schema.replace(rng.choice(["deviceId", "correlationId", "globalTid", "textId", "INT"]), "x", 1)
        else:
            rows[table] *= rng.choice([2, 50])
    with closing(sqlite3.connect(path)) as db:
        _fill(db, schema, rows)
    if rng.random() < 0.15:
        path.write_bytes(flipped(rng, path.read_bytes()))


def _fill(db: sqlite3.Connection, schema: str, rows: dict[str, list[list[object]]]) -> None:
    try:
        db.executescript(schema)
    except sqlite3.Error:  # two columns of one name: the table is not there
        return
    for table, found in rows.items():
        _insert(db, table, found)
    db.commit()


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]]) -> None:
    for row in rows:
        try:
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - our own tables
        except sqlite3.Error:  # what the table refuses is not in it
            continue
