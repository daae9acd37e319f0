"""Traces of ranks, read back by Chakra's own schema: groups, messages that meet, times, order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstick import Family, GraphCache, load, load_system, make_plan
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.errors import UsageError
from slipstick.ir.placement import DP, TP
from slipstick.report.trace.chakra.files import GROUPS, RankFiles, RankGroups, varint
from slipstick.report.trace.chakra.stage import COLLECTIVES, NodeType

# What the feeder of ASTRA-sim reads of an attribute (`et_feeder_node.cpp`).
READ_AS = {
    "is_cpu_op": 27, "num_ops": 9, "tensor_size": 13, "comm_type": 9, "comm_size": 9, "comm_src": 7, "comm_dst": 7,
    "comm_tag": 7, "pg_name": 29,
}  # fmt: skip


@dataclass(frozen=True)
class Read:
    id: int
    name: str
    type: int
    ctrl_deps: Sequence[int]
    data_deps: Sequence[int]
    micros: int
    attrs: Mapping[str, int | str]


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Read seven bits a byte, the lowest first; return the number and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def fields_of(data: bytes) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """Split a message of protobuf into numbers and texts by their fields, by the wire format's own description."""
    numbers, texts, at = dict[int, int](), dict[int, list[bytes]](), 0
    while at < len(data):
        key, at = varint_at(data, at)
        value, at = varint_at(data, at)
        assert key & 7 in (0, 2)
        if key & 7 == 0:
            numbers[key >> 3] = value
        else:
            texts.setdefault(key >> 3, []).append(data[at : at + value])
            at += value
    return numbers, texts


def packed(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = varint_at(data, at)
        found.append(value)
    return found


def attribute_of(data: bytes) -> tuple[str, int | str]:
    numbers, texts = fields_of(data)
    (name,) = texts.pop(1)
    said: dict[int, int | str] = {**numbers, **{kind: value[0].decode() for kind, value in texts.items()}}
    assert list(said) == [READ_AS[name.decode()]]
    return name.decode(), said[READ_AS[name.decode()]]


def node_of(data: bytes) -> Read:
    """Read fields of Node of `et_def.proto` (mlcommons/chakra, commit 21585d8) by their numbers."""
    numbers, texts = fields_of(data)
    assert set(numbers) <= {1, 3, 7}
    assert set(texts) <= {2, 4, 5, 10}
    ctrl, needed = (packed(b"".join(texts.get(field, ()))) for field in (4, 5))
    attrs = dict(map(attribute_of, texts[10]))
    return Read(numbers[1], texts[2][0].decode(), numbers[3], ctrl, needed, numbers[7], attrs)


def read(path: Path) -> list[Read]:
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint_at(data, at)
        messages.append(data[at : at + size])
        at += size
    assert fields_of(messages[0]) == ({}, {1: [b"0.0.4"]})
    return [node_of(message) for message in messages[1:]]


def answer_of(model: str, family: Family, **numbers: int) -> Estimate:
    plan = make_plan(seq_len=1024, global_batch=16, family=family, **numbers)
    return estimate(load(model, cache=GraphCache.default()), load_system("dgx-h100"), plan)


@pytest.fixture(scope="module")
def answer() -> Estimate:
    return answer_of("llama-3.1-8b", Family(sp=True, pp=True, zero=1), num_gpus=16, tp=2, pp=4)


@pytest.fixture(scope="module")
def ranks(answer: Estimate, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Read]]:
    folder = tmp_path_factory.mktemp("chakra")
    RankFiles(answer).write(folder)
    found = {rank: read(folder / f"rank.{rank}.et") for rank in range(16)}
    groups = json.loads((folder / GROUPS).read_text(encoding="utf-8"))
    for rank, nodes in found.items():
        assert all(rank in groups[node.attrs["pg_name"]] for node in nodes if node.type == NodeType.COLLECTIVE)
    return found


def test_each_node_stands_behind_what_it_waits_for(ranks: dict[int, list[Read]]) -> None:
    for nodes in ranks.values():
        assert [node.id for node in nodes] == list(range(len(nodes)))
        assert all(dep < node.id for node in nodes for dep in (*node.ctrl_deps, *node.data_deps))


def test_sent_messages_are_received_once_with_their_bytes(ranks: dict[int, list[Read]]) -> None:
    sent, received = (
        sorted((n.attrs["comm_src"], n.attrs["comm_dst"], n.attrs["comm_tag"], n.attrs["comm_size"])
               for nodes in ranks.values() for n in nodes if n.type == kind)
        for kind in (NodeType.SEND, NodeType.RECV)
    )  # fmt: skip
    assert sent == received
    # Two ranks of tensor by two of data parallelism; 8 micro-batches over three borders, there and back.
    assert len(sent) == len(set(sent)) == 2 * 2 * 8 * 3 * 2


def test_ranks_of_a_group_call_the_same_collectives_in_the_same_order(ranks: dict[int, list[Read]]) -> None:
    calls = defaultdict[str, list[list[tuple[int | str, int | str]]]](list)
    for nodes in ranks.values():
        mine = defaultdict[str, list[tuple[int | str, int | str]]](list)
        for n in nodes:
            if n.type == NodeType.COLLECTIVE:
                mine[str(n.attrs["pg_name"])].append((n.attrs["comm_type"], n.attrs["comm_size"]))
        for name, row in mine.items():
            calls[name].append(row)
    assert all(len(rows) == 2 and rows[0] == rows[1] for rows in calls.values())


def test_work_of_all_ranks_is_that_of_the_estimate(answer: Estimate, ranks: dict[int, list[Read]]) -> None:
    """Kernels of the busiest stage take as long as its computation, of which the step has bubbles and messages more."""
    busiest = max(sum(n.micros for n in nodes if n.type == NodeType.COMP) for nodes in ranks.values()) * 1e-6
    assert 0.5 * answer.metrics["step_time_s"] < busiest < answer.metrics["step_time_s"]
    flops = sum(int(n.attrs["num_ops"]) for nodes in ranks.values() for n in nodes if n.type == NodeType.COMP)
    # Model FLOPs are of products and attention alone; norms, activations and the update add some percent.
    assert flops == pytest.approx(answer.metrics["model_flops"], rel=0.05)


@pytest.mark.parametrize(
    ("model", "family", "numbers"),
    [
        ("gpt2", Family(zero=3), {"num_gpus": 4}),
        ("mixtral-8x7b", Family(ep=True, zero=1), {"num_gpus": 8, "ep": 8}),
    ],
)
def test_collectives_of_other_axes_have_groups_and_sizes(
    model: str, family: Family, numbers: dict[str, int], tmp_path: Path
) -> None:
    RankFiles(answer_of(model, family, **numbers)).write(tmp_path, [0, 1])
    assert sorted(p.name for p in tmp_path.iterdir()) == [GROUPS, "rank.0.et", "rank.1.et"]
    found = [n for n in read(tmp_path / "rank.1.et") if n.type == NodeType.COLLECTIVE]
    assert {n.attrs["comm_type"] for n in found} & ({6} if "ep" in numbers else {2, 7})
    assert all(int(n.attrs["comm_size"]) > 0 for n in found)


def test_groups_lie_as_the_order_of_axes_says() -> None:
    groups = RankGroups(16, {"tp": 2, "dp": 2, "pp": 4}, "tp-cp-ep-dp-pp", (DP.group, TP.group))
    assert groups.all() == {
        "1": [0, 2], "2": [1, 3], "5": [4, 6], "6": [5, 7], "9": [8, 10], "10": [9, 11], "13": [12, 14], "14": [13, 15],
        **{str(17 + k): [k, k + 1] for k in range(0, 16, 2)},
    }  # fmt: skip


def test_a_rank_that_is_not_there_is_refused(answer: Estimate, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rank 16: ranks are 0 to 15"):
        RankFiles(answer).write(tmp_path, [0, 16])


def test_collectives_have_the_numbers_of_the_schema() -> None:
    names = ("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER")
    assert {op: names[k].lower() for op, k in COLLECTIVES.items() if not op.startswith("ring")} == {
        op: op for op in COLLECTIVES if not op.startswith("ring")
    }
    assert varint(2**32).hex() == "8080808010"
