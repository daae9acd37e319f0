"""What is done with pieces that fail, without any worker: a made-up one that dies of some candidates."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.explore.block import Block, Found, cut
from slipstick.explore.executors.messages import Done, Errand, Failed, Gone, Ready, RefusedPiece, Report
from slipstick.explore.executors.retry import MAX_CRASHED, MAX_LOST_IN_A_ROW, Pieces
from slipstick.explore.executors.worker_pool import work_through
from slipstick.explore.job import InProcess
from slipstick.ir.errors import ClusterLostError, InternalError, UsageError

from ..fake_job import FakeJob


def finished(job: FakeJob, harmful: frozenset[int]) -> list[Found]:
    """All pieces worked on one by one; one that holds a harmful candidate fails."""
    pieces, worker, found = Pieces(job.blocks(), job.columns), job.open(), list[Found]()
    while (piece := pieces.next(None)) is not None:
        bad = harmful.intersection(range(piece.first, piece.last))
        told = pieces.failed(piece, "boom") if bad else pieces.done(piece, worker.work(piece))
        found += [told] if told else []
    assert not pieces.has_suspects
    assert (pieces.num_blocks_left, pieces.num_waiting) == (0, 0)
    return found


@given(st.integers(1, 60), st.integers(1, 20), st.frozensets(st.integers(0, 59), max_size=6))
def test_only_the_harmful_candidates_are_missing(num: int, at_once: int, harmful: frozenset[int]) -> None:
    job = FakeJob(num_candidates=num, at_once=at_once)
    found = {f.number: f for f in finished(job, harmful)}
    bad = sorted(number for number in harmful if number < num)
    assert list(found) == [block.number for block in job.blocks()]
    assert [f.num_candidates for f in found.values()] == [len(block) for block in job.blocks()]
    assert [line for f in found.values() for line in f.crashed] == [f"candidate {n} of part 0: boom" for n in bad]
    rows = [float(n) for n in range(num) if n % 2 == 0 and n not in harmful]
    assert np.concatenate([f.columns["number"] for f in found.values()]).tolist() == rows
    assert all(list(f.columns) == list(job.columns) for f in found.values())


def test_what_failed_once_is_no_ones_fault() -> None:
    (block,) = cut(0, 8, 8, 0)
    pieces = Pieces([block], ("number",))
    for _ in range(2):
        assert pieces.next(None) is block
        pieces.back(block)
    assert pieces.next(None) is block
    assert pieces.lost([block], "killed") is None
    assert pieces.next(None) is block
    assert pieces.done(block, Found(0, {"odd": 8}, 8, {})) == Found(0, {"odd": 8}, 8, {})


def test_a_block_that_failed_twice_is_halved_and_a_half_that_fails_at_once() -> None:
    (block,) = cut(0, 8, 8, 0)
    pieces, seen = Pieces([block], ()), list[tuple[int, int]]()
    for _ in range(7):
        piece = pieces.next(None)
        assert piece is not None
        seen.append((piece.first, piece.last))
        pieces.failed(piece, "boom")
    assert seen == [(0, 8), (0, 8), (0, 4), (0, 2), (0, 1), (0, 1), (1, 2)]


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 4))
def test_workers_keep_to_their_parts(parts: list[int], num_workers: int) -> None:
    blocks = [Block(number, part, 0, 1) for number, part in enumerate(parts)]
    pieces, known, given_out = Pieces(blocks, ()), dict[int, int](), list[Block]()
    order = list(dict.fromkeys(parts))
    while pieces.num_waiting:
        worker = len(given_out) % num_workers
        left = Counter(block.part for block in set(blocks) - set(given_out))
        piece = pieces.next(known.get(worker))
        assert piece is not None
        begun = {block.part for block in given_out}
        if left[known.get(worker, -1)]:
            assert piece.part == known[worker]
        elif any(part not in begun for part in left):
            assert piece.part not in begun
            behind = order[order.index(known[worker]) + 1 :] if worker in known else order
            assert piece.part == behind[0] if behind and behind[0] not in begun else True
        known[worker] = piece.part
        given_out.append(piece)
    assert pieces.next(0) is None
    assert sorted(given_out, key=lambda block: block.number) == blocks


def test_a_part_that_a_piece_comes_back_to_is_not_begun_a_second_time() -> None:
    pieces = Pieces([Block(0, 0, 0, 1), Block(1, 1, 0, 1)], ())
    first = pieces.next(None)
    assert first is not None
    pieces.back(first)
    assert [pieces.next(None), pieces.next(None), pieces.next(None)] == [Block(1, 1, 0, 1), first, None]


def test_when_all_candidates_fail_it_is_no_fault_of_theirs() -> None:
    job = FakeJob(num_candidates=2 * MAX_CRASHED, at_once=500)
    with pytest.raises(InternalError, match=rf"more than {MAX_CRASHED} .*candidate {MAX_CRASHED} of part 0: boom"):
        finished(job, frozenset(range(2 * MAX_CRASHED)))


def test_when_all_workers_die_it_is_no_fault_of_candidates() -> None:
    (block,) = cut(0, 2**MAX_LOST_IN_A_ROW, 2**MAX_LOST_IN_A_ROW, 0)
    pieces = Pieces([block], ())
    for _ in range(MAX_LOST_IN_A_ROW):
        assert pieces.lost([pieces.next(None) or block], "killed") is None
    with pytest.raises(InternalError, match=r"51 workers died one after another, .*\(killed\) on candidates"):
        pieces.lost([pieces.next(None) or block], "killed")


class FakeWorkerPool:
    """Workers without processes: each says one thing at a time; `starts` and `fates` say what, beside the usual."""

    def __init__(
        self, job: FakeJob, size: int, starts: Iterable[Report] = (), fates: Iterable[Report | None] = ()
    ) -> None:
        self.job, self.starts, self.fates = job, iter(starts), iter(fates)
        self.queues: dict[int, deque[Block | None]] = {}
        self.num_workers, self.num_spawned, self.most_given, self.is_open = size, 0, 0, True

    def size(self) -> int:
        return self.num_workers

    def spawn(self) -> int:
        self.num_spawned += 1
        self.queues[self.num_spawned] = deque([None])
        return self.num_spawned

    def give(self, number: int, errand: Errand) -> None:
        self.queues[number].extend(errand.pieces)
        self.most_given = max(self.most_given, sum(map(len, self.queues.values())))

    def poll(self) -> Sequence[tuple[int, Report]]:
        number = next(number for number, queue in self.queues.items() if queue)
        piece = self.queues[number].popleft()
        usual = Ready() if piece is None else Done(self.job.open().work(piece))
        fate = next(self.starts if piece is None else self.fates, None) or usual
        if isinstance(fate, Gone):
            del self.queues[number]
        return [(number, fate)]

    def end(self, number: int) -> None:
        del self.queues[number]

    def shutdown(self) -> None:
        self.is_open = False


@given(
    st.integers(1, 5),
    st.lists(st.just(Gone("killed")), max_size=2),
    st.lists(st.sampled_from([None, Gone("killed"), Failed("boom")]), max_size=30),
)
def test_whatever_happens_to_workers_every_block_is_found_once(
    size: int, starts: list[Report], fates: list[Report | None]
) -> None:
    job = FakeJob(num_candidates=50)
    pool = FakeWorkerPool(job, size, starts, fates)
    found = sorted(work_through(pool, Pieces(job.blocks(), job.columns)), key=lambda f: f.number)
    assert [f.number for f in found] == [block.number for block in job.blocks()]
    assert [f.num_candidates for f in found] == [len(block) for block in job.blocks()]
    assert pool.most_given <= 2 * size
    assert not pool.is_open


def test_a_crew_without_trouble_finds_what_is_found_in_process() -> None:
    job = FakeJob()
    found = sorted(work_through(FakeWorkerPool(job, 3), Pieces(job.blocks(), job.columns)), key=lambda f: f.number)
    for one, other in zip(found, InProcess().run(job, job.blocks()), strict=True):
        assert (one.number, one.pruned, one.crashed) == (other.number, other.pruned, other.crashed)
        assert all(one.columns[name].tobytes() == other.columns[name].tobytes() for name in job.columns)


def test_who_answered_and_died_of_the_next_piece_before_the_answer_was_out_is_not_blamed() -> None:
    class Hasty(FakeWorkerPool):
        """What is done in a queue before the piece that kills is lost with it."""

        def poll(self) -> Sequence[tuple[int, Report]]:
            number = next(number for number, queue in self.queues.items() if queue)
            given = [piece for piece in self.queues[number] if piece is not None]
            if any(7 in range(piece.first, piece.last) for piece in given):
                del self.queues[number]
                return [(number, Gone("killed"))]
            return super().poll()

    job = FakeJob(num_candidates=16, at_once=1)
    found = list(work_through(Hasty(job, 2), Pieces(job.blocks(), job.columns)))
    assert [line for f in found for line in f.crashed] == ["candidate 7 of part 0: killed"]
    assert sum(f.num_candidates for f in found) == len(found) == 16


def test_workers_that_never_come_to_be_end_the_search() -> None:
    job = FakeJob()
    pool = FakeWorkerPool(job, 2, [Gone("killed by signal 9")] * 3)
    with pytest.raises(InternalError, match=r"3 workers died one after another before they were ready, .* signal 9"):
        list(work_through(pool, Pieces(job.blocks(), job.columns)))
    assert not pool.is_open


def test_what_is_lost_with_its_machine_is_not_to_blame() -> None:
    job = FakeJob(num_candidates=16, at_once=1)
    pool = FakeWorkerPool(job, 2, [Gone("killed", with_machine=True)] * 5)
    found = list(work_through(pool, Pieces(job.blocks(), job.columns)))
    assert sum(f.num_candidates for f in found) == len(found) == 16
    assert not [line for f in found for line in f.crashed]


def test_a_cluster_that_loses_machine_after_machine_is_lost() -> None:
    job = FakeJob()
    pool = FakeWorkerPool(job, 2, [Gone("killed", with_machine=True)] * 10)
    with pytest.raises(ClusterLostError, match="10 machines were lost"):
        list(work_through(pool, Pieces(job.blocks(), job.columns)))
    assert not pool.is_open


def test_what_no_worker_can_help_is_raised_as_it_is() -> None:
    job = FakeJob()
    pool = FakeWorkerPool(job, 2, [RefusedPiece(UsageError("unknown model 'lama'"))])
    with pytest.raises(UsageError, match=r"^unknown model 'lama'$"):
        list(work_through(pool, Pieces(job.blocks(), job.columns)))
    assert not pool.is_open


def test_no_more_workers_than_blocks() -> None:
    job = FakeJob(num_candidates=8)
    pool = FakeWorkerPool(job, 64)
    assert len(list(work_through(pool, Pieces(job.blocks(), job.columns)))) == 2
    assert pool.num_spawned == 2


def test_a_crew_that_may_grow_grows() -> None:
    job = FakeJob(num_candidates=40)
    pool = FakeWorkerPool(job, 1)
    found = work_through(pool, Pieces(job.blocks(), job.columns))
    next(found)
    pool.num_workers = 3
    assert len(list(found)) == 9
    assert pool.num_spawned == 3


def test_nothing_to_do_needs_no_one() -> None:
    pool = FakeWorkerPool(FakeJob(), 2)
    assert list(work_through(pool, Pieces([], ("number",)))) == []
    assert pool.num_spawned == 0
