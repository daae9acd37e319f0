"""Spaces of servers of small models: what is counted, what is kept, and that each row is what one server says."""

from __future__ import annotations

import json
import pickle
import random
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cli import run
from slipstick.cost.money import Money, Terms, system_money
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.serve_pools import serve_pools
from slipstick.explore.block import Found, joined
from slipstick.explore.job import InProcess, Worker
from slipstick.explore.machine import MachineChoice
from slipstick.explore.plans.job import TOO_LARGE, UNEVEN
from slipstick.explore.servers.answers import answer_of, command_of
from slipstick.explore.servers.job import ServingJob, serving_job, space_text
from slipstick.explore.servers.rows import COLUMNS, METRICS, MONEY, OF_POOLS
from slipstick.explore.servers.space import ServingSpace
from slipstick.ir.errors import InfeasibleError, PlanError, SlipstickError, UnknownNameError, UsageError
from slipstick.ir.sizes.expr import Num

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
DGX = MachineChoice(name="dgx-h100")
# 80 GB less 2 GiB that the stack holds: a share of 0.0262 leaves some 70 MB for caches.
TIGHT = ServingSpace(
    model=str(CONFIGS / "tiny-llama.json"), systems=(DGX,), gpus=3, prompt=300, output=100, memory_utilization=0.0262,
    batch=(1, 7, 64, 1000), tp=(1, 2), pp=(1, 2), prefill_batch=(1, 2), ttft_s=1.0, tpot_s=0.00125,
    max_batched_tokens=(256,),
)  # fmt: skip
# Coupled ranks, experts whole and split, an engine of static batches, prompts never cut, caches by layers.
MIXED = ServingSpace(
    model=str(CONFIGS / "tiny-mixtral.json"), systems=(replace(DGX, overrides=("chip.clock=1.5GHz",)),), gpus=4,
    prompt=64, output=32, cached=16, shared_prefix=True, e2el_s=1.0, engines=("vllm", "nemo-2023"),
    max_batched_tokens=(0,), kv_dtype=("fp8",), batch=(2, 33, 99), prefill_batch=(1,), fewer_gpus=False,
    tp=(1, 2), pp=(1,), stream_kv=True, max_num_seqs=33,
)  # fmt: skip
SPACES = {"tight": TIGHT, "mixed": MIXED}


# What tells one server from another, whatever its load.
SERVER = ("apart", "tp", "pp", "dp", "prefill_tp", "prefill_pp", "prefill_dp", "prefill_batch")


@cache
def found_in(name: str) -> tuple[ServingJob, tuple[Found, ...]]:
    job = serving_job(SPACES[name], at_once=300)
    return job, tuple(InProcess().run(job, job.blocks()))


def rows_of(job: ServingJob, found: Sequence[Found]) -> list[Mapping[str, float]]:
    columns = joined(found).columns
    return [{name: float(columns[name][i]) for name in job.columns} for i in range(len(columns["tp"]))]


def place_of(row: Mapping[str, float]) -> tuple[float, ...]:
    return (*(row[name] for name in SERVER), row["concurrency"])


@pytest.mark.parametrize("name", SPACES)
def test_every_candidate_is_kept_or_pruned_for_a_reason(name: str) -> None:
    job, found = found_in(name)
    assert sum(f.num_candidates for f in found) == sum(len(block) for block in job.blocks())
    assert all(f.num_candidates == len(b) for f, b in zip(found, job.blocks(), strict=True))
    assert all(tuple(f.columns) == COLUMNS for f in found)
    pruned = sum((Counter(f.pruned) for f in found), Counter[str]())
    assert sum(f.num_legal for f in found) == sum(len(b) for b in job.blocks()) - pruned[UNEVEN]
    assert pruned["more than fits at once"] > 0
    # Everything is in time there: the most that fits is one of the batches.
    assert (pruned["the same as another batch"] > 0) == (name == "mixed")


def test_limits_keep_the_rows_that_meet_them_and_count_the_others() -> None:
    free = serving_job(replace(TIGHT, ttft_s=None, tpot_s=None))
    loose = list(InProcess().run(free, free.blocks()))
    every = rows_of(free, loose)
    ttft_s, tpot_s, e2el_s = (float(np.median([row[name] for row in every])) for name in ("ttft_s", "tpot_s", "e2el_s"))
    job = serving_job(replace(TIGHT, ttft_s=ttft_s, tpot_s=tpot_s, e2el_s=e2el_s))
    found = list(InProcess().run(job, job.blocks()))
    pruned = sum((Counter(f.pruned) for f in found), Counter[str]())
    late = [row for row in every if row["ttft_s"] > ttft_s]
    slow = [row for row in every if row not in late and row["tpot_s"] > tpot_s]
    left = [row for row in every if row not in late and row not in slow and row["e2el_s"] > e2el_s]
    good, known = [place_of(row) for row in every if row not in [*late, *slow, *left]], set(map(place_of, every))
    kept = [place_of(row) for row in rows_of(job, found)]
    assert [place for place in kept if place in known] == good
    # Of each server there is one candidate more: the most in time, where it is none of the batches.
    more = [place for place in kept if place not in known]
    crowded = sum(f.pruned["more than fits at once"] for f in loose)
    servers = {place[:-1] for place in known}
    assert sum(pruned.values()) + len(more) == len(late) + len(slow) + len(left) + crowded + len(servers)
    for name, those in (("misses TTFT", late), ("misses TPOT", slow), ("misses E2EL", left)):
        assert pruned[name] >= len(those)
    assert min(len(late), len(slow), len(good), len(more)) > 0


def test_servers_are_counted_as_by_hand() -> None:
    job = serving_job(TIGHT)
    # Of 3 devices: tp1 1 to 3 times, tp2 and pp2 once each; tp2 pp2 takes 4.
    assert job.part(False).num_candidates == (3 + 1 + 1) * (4 + 1)
    # Pools: 1+1, 1+2 and 2+1 of one device; one of two devices with one of one, either way and of either kind.
    assert job.part(True).num_candidates == (3 + 2 + 2) * 2 * (4 + 1)
    # Without latencies there is no most of them; with all devices used 3 + 0, 2 + 1 and so on are left.
    every = replace(TIGHT, ttft_s=None, tpot_s=None, fewer_gpus=False)
    assert serving_job(every).part(False).num_candidates == 3 * 4
    assert serving_job(every).part(True).num_candidates == (2 + 2 + 2) * 2 * 4


def test_experts_are_dealt_out_in_every_way_that_is_legal() -> None:
    # Two of two devices each: ep 2 and 4 whole, ep 2 split over tp; of tp1 on four: ep 2 and 4.
    groups = serving_job(MIXED).part(False).groups
    units = {(g.unit.tp, g.unit.ep, g.unit.etp, g.unit.dp) for g in groups}
    assert units == {(1, 1, 1, 0), (2, 1, 2, 0), (1, 2, 1, 4), (1, 4, 1, 4), (2, 2, 1, 2), (2, 4, 1, 2), (2, 2, 2, 2)}


@pytest.mark.parametrize("name", SPACES)
def test_a_row_is_what_its_server_says_bit_for_bit(name: str) -> None:
    job, found = found_in(name)
    rows, apart = rows_of(job, found), replace(job)
    picked = random.Random(5).sample(rows, 12)
    for row in picked:
        answer = answer_of(apart, row)
        assert answer.money is not None
        said = {**answer.metrics, **answer.money.metrics, "gpus": float(answer.num_gpus)}
        for key in ("gpus", "concurrency", *METRICS, *OF_POOLS, *MONEY):
            assert said[key] == row[key] if key in said else np.isnan(row[key]), (key, command_of(job, row))
    assert {row["apart"] for row in picked} == {0.0, 1.0}
    assert name == "tight" or {row["ep"] > 1 for row in picked} == {True, False}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_the_command_of_a_row_answers_the_same(name: str, apart: float, capsys: pytest.CaptureFixture[str]) -> None:
    job, found = found_in(name)
    rows = [row for row in rows_of(job, found) if row["apart"] == apart]
    row = max(rows, key=lambda r: (r["ep"], r["tp"] * r["etp"] + r["prefill_tp"], r["tokens_per_s"]))
    assert run([*shlex.split(command_of(job, row))[1:], "--quiet", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)["metrics"]
    assert {key: row[key] for key in (*METRICS, *OF_POOLS, *MONEY) if key in said} == {
        key: said[key] for key in (*METRICS, *OF_POOLS, *MONEY) if key in said
    }
    assert said["tokens_per_s"] > 0


def test_ranks_that_share_out_a_cache_are_an_axis(capsys: pytest.CaptureFixture[str]) -> None:
    job = serving_job(replace(MIXED, cp=(1, 2), batch=(2,), engines=("vllm",), gpus=4))
    found = tuple(InProcess().run(job, job.blocks()))
    rows = [row for row in rows_of(job, found) if row["cp"] == 2]
    # Pools are tried without. Four devices are two of tp1 cp2 or one of tp2 cp2, with experts split, or shared by two.
    assert {(r["tp"], r["ep"], r["etp"], r["dp"]) for r in rows} == {
        (1, 1, 1, 2),
        (2, 1, 2, 1),
        (1, 2, 1, 2),
        (2, 2, 1, 1),
    }
    assert not any(row["apart"] for row in rows)
    for row in rows:
        assert "--cp 2" in command_of(job, row)
        assert run([*shlex.split(command_of(job, row))[1:], "--quiet", "--format", "json"]) == 0
        said = json.loads(capsys.readouterr().out)["metrics"]
        assert {key: row[key] for key in (*METRICS, *MONEY) if key in said} == {
            key: said[key] for key in (*METRICS, *MONEY) if key in said
        }


def test_the_most_within_the_target_is_that_of_one_server() -> None:
    job, found = found_in("tight")
    rows, apart = rows_of(job, found), replace(job)
    most: dict[tuple[float, ...], Mapping[str, float]] = {}
    for row in rows:
        key = place_of(row)[:-1]
        most[key] = max(most.get(key, row), row, key=lambda r: r["concurrency"])
    assert len(most) > 6
    for row in random.Random(3).sample(list(most.values()), 6):
        one = answer_of(apart, row)
        best = (
            serve(one.server, job.space.lengths, Load(), job.space.target)
            if one.pools is None
            else serve_pools(replace(one.pools, found=None), job.space.lengths, Load(), job.space.target)
        )
        assert best.metrics["concurrency"] == row["concurrency"]


@given(st.integers(0, 10**6), st.data())
@settings(max_examples=2, deadline=None)
def test_pieces_of_a_block_find_what_the_block_finds(at: int, data: st.DataObject) -> None:
    job, found = found_in("tight")
    blocks, worker = job.blocks(), _worker()
    block, whole = blocks[at % len(blocks)], found[at % len(blocks)]
    cut = data.draw(st.integers(block.first + 1, block.last - 1))
    pieces = joined([worker.work(replace(block, last=cut)), worker.work(replace(block, first=cut))])
    assert (pieces.pruned, pieces.num_legal) == (whole.pruned, whole.num_legal)
    for name in COLUMNS:
        assert np.array_equal(pieces.columns[name], whole.columns[name], equal_nan=True), name


@cache
def _worker() -> Worker:
    return found_in("tight")[0].open()


@pytest.mark.parametrize("name", SPACES)
def test_a_job_travels_and_is_known_by_what_it_searches(name: str) -> None:
    job = found_in(name)[0]
    assert pickle.loads(pickle.dumps(job)) == job
    assert len(pickle.dumps(job)) < 4096
    assert serving_job(job.space, at_once=300) == job
    assert len(job.digest) == 64
    assert replace(job, space=replace(job.space, output=33)).digest != job.digest


def test_a_digest_goes_by_what_files_hold(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(Path(TIGHT.model).read_text(encoding="utf-8"), encoding="utf-8")
    job = serving_job(replace(TIGHT, model=str(path)))
    before = job.digest
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert job.digest != before


def test_constraints_leave_rows_out_and_are_counted() -> None:
    rows = rows_of(*found_in("tight"))
    bound = float(np.median([row["usd_per_mtok"] for row in rows]))
    job = serving_job(TIGHT, ["tokens_per_s,usd_per_mtok"], [f"usd_per_mtok<={bound!r}", "prefill_busy<=0.5"], 300)
    found = list(InProcess().run(job, job.blocks()))
    pruned = sum((Counter(f.pruned) for f in found), Counter[str]())
    cheap = [row for row in rows if row["usd_per_mtok"] <= bound]
    # Replicas have no workers of prompts that could be busy.
    left = [row for row in cheap if row["prefill_busy"] <= 0.5]
    assert list(map(place_of, rows_of(job, found))) == list(map(place_of, left))
    broken = [num for reason, num in pruned.items() if reason.startswith("breaks ")]
    assert broken == [len(rows) - len(cheap), len(cheap) - len(left)]
    assert [str(goal) for goal in job.goals] == ["tokens_per_s", "usd_per_mtok"]
    assert job.digest != found_in("tight")[0].digest
    with pytest.raises(UnknownNameError, match="peak_mem_bytes"):
        serving_job(TIGHT, constraints=["peak_mem_bytes<=0.9"])


def test_words_of_columns_are_those_of_the_space() -> None:
    words = serving_job(replace(TIGHT, max_batched_tokens=(0, 512))).words
    assert words["max_batched_tokens"] == ("never cut", "512")
    assert (words["system"], words["apart"]) == (("dgx-h100",), ("replicas", "pools"))


def test_what_does_not_fit_and_what_no_unit_runs_is_said() -> None:
    small = serving_job(replace(TIGHT, memory_utilization=0.01, precision=("none", "nvfp4")))
    pruned = sum((Counter(f.pruned) for f in InProcess().run(small, small.blocks())), Counter[str]())
    num = small.part(False).num_candidates + small.part(True).num_candidates
    assert pruned == {TOO_LARGE: num, "no matrix units for its precision": num}


def test_prompts_that_a_worker_cannot_hold_are_refused() -> None:
    job, found = found_in("tight")
    row = next(row for row in rows_of(job, found) if row["apart"])
    pools = answer_of(job, row).pools
    assert pools is not None
    held = int(pools.prefill.times.free_bytes // pools.prefill.times.kv_bytes(304.0))
    with pytest.raises(InfeasibleError, match=f"holds {held} prompts at once, and {held + 1} are asked for"):
        serve_pools(replace(pools, batch=held + 1), job.space.lengths, Load(concurrency=1.0))
    empty = replace(pools.prefill, times=replace(pools.prefill.times, free_bytes=-1.0))
    with pytest.raises(InfeasibleError, match="prefill workers: no memory is left"):
        serve_pools(replace(pools, prefill=empty), job.space.lengths, Load(concurrency=1.0))


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"gpus": 0}, PlanError, "gpus=0"),
        ({"tp": (0,)}, PlanError, "tp=0"),
        ({"systems": ()}, UsageError, "systems: nothing to try"),
        ({"output": 1, "pools": "on"}, UsageError, "decode pool has nothing to do"),
        ({"pools": "of"}, UnknownNameError, "did you mean 'off'"),
        ({"basis": "markt"}, UnknownNameError, "did you mean 'market'"),
        ({"exchange": "all2all"}, UnknownNameError, "alltoall"),
        ({"e2el_s": -1.0}, UsageError, "E2EL"),
        ({"memory_utilization": 1.5}, UsageError, "memory_utilization=1.5"),
        ({"max_num_seqs": 0}, UsageError, "max_num_seqs=0"),
        ({"max_batched_tokens": (-1,)}, UsageError, "max_batched_tokens=-1"),
        ({"tp": (64,)}, UsageError, "no server of 3 GPUs is in this space: tp 64"),
        ({"gpus": 1, "pools": "on"}, UsageError, "no server of 1 GPUs"),
        ({"ep": (8,)}, PlanError, "no experts to deal out"),
        ({"prompt": 10**6}, UsageError, "positions"),
        ({"precision": ("fp7",)}, UnknownNameError, "fp7"),
        ({"precision": ("nvfp4",)}, PlanError, "fp4 matrix units"),
        ({"engines": ("vlm",)}, UnknownNameError, "did you mean 'vllm'"),
        ({"systems": (MachineChoice(name="dgx-h10"),)}, UnknownNameError, "did you mean 'dgx-h100'"),
        ({"model": "llama-3.1-7b"}, UnknownNameError, "llama-3.1-8b"),
    ],
)
def test_what_cannot_be_searched_is_refused(changed: dict[str, object], error: type[SlipstickError], told: str) -> None:
    with pytest.raises(error, match=told):
        serving_job(replace(TIGHT, **changed))  # type: ignore[arg-type]


def test_a_space_says_no_more_than_it_must() -> None:
    assert space_text(ServingSpace(model="m", systems=(DGX,), gpus=8, prompt=10, output=5, tp=(1, 2))).splitlines() == [
        "model: m", "systems:", "- dgx-h100", "gpus: 8", "prompt: 10", "output: 5", "engines:", "- vllm", "tp:", "- 1",
        "- 2",
    ]  # fmt: skip


def test_a_number_of_devices_without_a_price_takes_none_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    job, found = found_in("tight")

    def priced_up_to_two(system: System, num_gpus: Num, terms: Terms | None = None) -> Money:
        if np.max(num_gpus) > 2:
            raise UsageError("switches that nobody names")
        return system_money(system, num_gpus, terms)

    monkeypatch.setattr("slipstick.explore.servers.rows.system_money", priced_up_to_two)
    few = joined(tuple(InProcess().run(job, job.blocks()))).columns
    every, unpriced = joined(found).columns, np.isnan(few["usd_per_mtok"])
    assert few["gpus"][~unpriced].max() == 2
    assert unpriced[few["gpus"] > 2].all()
    for name in job.columns:
        same = slice(None) if name not in MONEY else ~unpriced
        np.testing.assert_array_equal(few[name][same], every[name][same])
