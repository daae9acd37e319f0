from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from slipstick.explore.block import Found
from slipstick.explore.job import InProcess
from slipstick.explore.runs.ledger import Ledger
from slipstick.explore.runs.packed import Head, ends, packed, unpacked
from slipstick.explore.runs.running import Ran, run_blocks
from slipstick.ir.errors import InternalError, StorageError, UsageError

from ..fake_job import FakeJob
from ..kept_run import VERSION, finished, read_all, resumed, run_of, table_of

JOB = FakeJob()
FLOATS = st.floats(width=64, allow_nan=True, allow_infinity=True)


def _all(job: FakeJob) -> tuple[object, ...]:
    return table_of(InProcess().run(job, job.blocks()))


@settings(max_examples=30)
@given(
    st.integers(0, 5).flatmap(lambda n: arrays.arrays(np.float64, (3, n), elements=FLOATS)),
    st.dictionaries(st.text(max_size=8), st.integers(0, 2**62), max_size=3),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=2),
)
def test_a_block_comes_back_bit_for_bit(table: np.ndarray, pruned: dict[str, int], crashed: list[str]) -> None:
    names = ("a", "b", "c")
    head, data = packed(Found(7, pruned, 5, dict(zip(names, table, strict=True)), tuple(crashed)), names)
    read = Head.read((*head, head.checksum()))
    assert read == head
    back = unpacked(head, data, names)
    assert (back.number, back.pruned, back.num_legal, back.crashed) == (7, pruned, 5, tuple(crashed))
    assert [back.columns[name].tobytes() for name in names] == [column.tobytes() for column in table]


def test_a_head_knows_the_ends_of_each_column_without_nan() -> None:
    columns = {"a": np.array([3.0, np.nan, -1.0]), "b": np.array([np.nan, np.nan, np.nan])}
    head, _ = packed(Found(0, {}, 3, columns), ("a", "b"))
    assert ends(head.least).tolist()[0] == -1.0
    assert ends(head.most).tolist()[0] == 3.0
    assert np.isnan(ends(head.least)[1])


def test_a_block_of_other_columns_is_our_own_mistake() -> None:
    with pytest.raises(InternalError, match=r"block 2 has columns \['a'\], the run \['b'\]"):
        packed(Found(2, {}, 1, {"a": np.zeros(1)}), ["b"])


@pytest.mark.parametrize("place", range(9))
def test_a_head_with_anything_changed_is_not_read(place: int) -> None:
    head, _ = packed(Found(2, {"odd": 1}, 3, {"a": np.ones(2)}, ("x",)), ["a"])
    row: list[object] = [*head, head.checksum()]
    old = row[place]
    row[place] = old + 1 if isinstance(old, int) else old + " " if isinstance(old, str) else b"\0" * len(str(old))
    assert Head.read(row) is None


def test_a_search_with_a_ledger_shows_and_keeps_what_one_without_finds(tmp_path: Path) -> None:
    shown: list[Found] = []
    path = tmp_path / "a.sqlite"
    with Ledger.create(path, run_of(JOB)) as ledger:
        assert run_blocks(JOB, InProcess(), ledger, shown.append) == Ran(0, 0, 5)
    assert table_of(shown) == read_all(path) == _all(JOB)
    assert run_blocks(JOB, InProcess(), None, lambda _: None) == Ran(0, 0, 5)


def test_a_finished_run_is_one_plain_file(tmp_path: Path) -> None:
    finished(tmp_path / "a.sqlite", JOB)
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]
    before = (tmp_path / "a.sqlite").read_bytes()
    assert resumed(tmp_path / "a.sqlite", JOB) == (Ran(5, 0, 0), _all(JOB))
    assert read_all(tmp_path / "a.sqlite") == _all(JOB)
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]
    assert len((tmp_path / "a.sqlite").read_bytes()) == len(before)


def test_only_what_is_missing_is_done(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    worker = JOB.open()
    with Ledger.create(path, run_of(JOB)) as ledger:
        for block in JOB.blocks()[3:0:-1]:
            ledger.write(worker.work(block))
            ledger.write(worker.work(block))
        assert (ledger.done(), ledger.num_done()) == ({1, 2, 3}, 3)
        assert [found.number for found in ledger.kept()] == [1, 2, 3]
        assert [head.num_rows for head in ledger.heads()] == [2, 2, 2]
    assert resumed(path, JOB) == (Ran(3, 0, 2), _all(JOB))


def test_the_record_comes_back(tmp_path: Path) -> None:
    path = finished(tmp_path / "a.sqlite", JOB)
    with Ledger.open(path) as ledger:
        assert ledger.run == run_of(JOB)


class TestRefused:
    def test_another_version(self, tmp_path: Path) -> None:
        path = finished(tmp_path / "a.sqlite", JOB)
        with pytest.raises(UsageError, match=r"'a' was written by slipstick 1.0\+abc, this is 2.0: .* never mixed"):
            Ledger.resume(path, JOB, "2.0")

    def test_another_search_says_how_it_differs(self, tmp_path: Path) -> None:
        path = finished(tmp_path / "a.sqlite", JOB)
        with pytest.raises(UsageError, match=r"another search \(- there, \+ here\): -at_once: 4; \+at_once: 5;"):
            Ledger.resume(path, FakeJob(at_once=5), VERSION)

    def test_a_file_that_is_there(self, tmp_path: Path) -> None:
        path = finished(tmp_path / "a.sqlite", JOB)
        with pytest.raises(UsageError, match="is there already"):
            Ledger.create(path, run_of(JOB))
        assert read_all(path) == _all(JOB)

    def test_what_is_no_ledger(self, tmp_path: Path) -> None:
        (tmp_path / "text.sqlite").write_text("a,b\n1,2\n" * 100)
        (tmp_path / "empty.sqlite").touch()
        other = sqlite3.connect(tmp_path / "other.sqlite")
        other.execute("CREATE TABLE run (record TEXT)")
        other.close()
        for name, message in (
            ("text", "is no ledger"), ("empty", "but no ledger"), ("other", "but no ledger"), ("none", "is no file"),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=message):
                Ledger.open(tmp_path / f"{name}.sqlite")

    def test_another_form_of_tables(self, tmp_path: Path) -> None:
        path = finished(tmp_path / "a.sqlite", JOB)
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 2")
        db.close()
        with pytest.raises(UsageError, match="has form 2 of ledgers, and this version of slipstick reads form 1"):
            Ledger.open(path)

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=r"cannot write .*File exists"):
            Ledger.create(tmp_path / "file" / "a.sqlite", run_of(JOB))


class TestFullDisk:
    def test_what_was_kept_stays_and_the_run_goes_on(self, tmp_path: Path) -> None:
        job = FakeJob(num_candidates=100_000, at_once=5000)
        path = tmp_path / "a.sqlite"
        with Ledger.create(path, run_of(job)) as ledger:
            # What SQLite may take, as a disk that is full; each block takes two pages or so.
            ledger._db.execute("PRAGMA max_page_count = 12")
            with pytest.raises(StorageError, match="database or disk is full; blocks that were committed") as caught:
                run_blocks(job, InProcess(), ledger, lambda _: None)
            num_kept = ledger.num_done()
        assert caught.value.exit_code == 2
        assert 0 < num_kept < 20
        assert resumed(path, job) == (Ran(num_kept, 0, 20 - num_kept), _all(job))

    def test_nothing_is_left_of_what_could_not_begin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "rename", full)
        with pytest.raises(StorageError, match="No space left on device"):
            Ledger.create(tmp_path / "a.sqlite", run_of(JOB))
        assert list(tmp_path.iterdir()) == []


class TestDamage:
    @pytest.fixture(scope="class")
    @staticmethod
    def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
        return finished(tmp_path_factory.mktemp("whole") / "a.sqlite", JOB).read_bytes()

    def test_a_truncated_file_is_refused_and_left(self, whole: bytes, tmp_path: Path) -> None:
        for length in range(0, len(whole), 997):
            self._refused_or_sound(tmp_path / "a.sqlite", whole[:length])
            with pytest.raises(UsageError):
                Ledger.resume(tmp_path / "a.sqlite", JOB, VERSION)

    @given(data=st.data())
    def test_flipped_bytes_never_make_other_rows(
        self, whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        folder = tmp_path_factory.mktemp("flipped")
        changed = bytearray(whole)
        for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
            changed[place] ^= data.draw(st.integers(1, 255))
        self._refused_or_sound(folder / "a.sqlite", bytes(changed))

    def test_any_byte_of_the_first_page_and_of_what_holds_something(self, whole: bytes, tmp_path: Path) -> None:
        used = [place for place, byte in enumerate(whole) if byte]
        for place in used[::7]:
            changed = bytearray(whole)
            changed[place] ^= 0xFF
            self._refused_or_sound(tmp_path / "a.sqlite", bytes(changed))

    def test_a_truncated_or_damaged_log_only_loses_its_last_blocks(self, tmp_path: Path) -> None:
        with Ledger.create(tmp_path / "a.sqlite", run_of(JOB)) as ledger:
            run_blocks(JOB, InProcess(), ledger, lambda _: None)
            main, log = ((tmp_path / f"a.sqlite{end}").read_bytes() for end in ("", "-wal"))
        path, nums_done = tmp_path / "b.sqlite", set[int]()
        for length in range(0, len(log), 4099):
            for written in (log[:length], log[:length] + bytes([log[length] ^ 0xFF]) + log[length + 1 :]):
                path.with_name("b.sqlite-wal").write_bytes(written)
                path.with_name("b.sqlite-shm").unlink(missing_ok=True)
                self._refused_or_sound(path, main)
                with Ledger.open(path) as read:
                    nums_done.add(len(read.done()))
                    assert read.done() == set(range(read.num_done()))
        assert nums_done == {0, 1, 2, 3, 4}
        path.with_name("b.sqlite-wal").write_bytes(log[: len(log) // 2])
        ran, shown = resumed(path, JOB)
        assert ran.num_kept == 2
        assert shown == _all(JOB)

    def test_a_damaged_block_is_done_again(self, whole: bytes, tmp_path: Path) -> None:
        path = tmp_path / "a.sqlite"
        path.write_bytes(whole)
        db = sqlite3.connect(path)
        db.execute("UPDATE block SET data = zeroblob(length(data)) WHERE number = 2")
        db.commit()
        db.close()
        with Ledger.open(path) as ledger:
            assert ledger.done() == {0, 1, 3, 4}
            with pytest.raises(UsageError, match="block 2 is not what was written; nothing was changed"):
                list(ledger.kept())
        assert resumed(path, JOB) == (Ran(4, 1, 1), _all(JOB))
        assert read_all(path) == _all(JOB)

    @staticmethod
    def _refused_or_sound(path: Path, content: bytes) -> None:
        """Reading fails in words, or gives blocks as they were; the file stays as it is."""
        path.write_bytes(content)
        right = {found.number: table_of([found]) for found in InProcess().run(JOB, JOB.blocks())}
        try:
            with Ledger.open(path) as ledger:
                assert ledger.run == run_of(JOB)
                for found in ledger.sound():
                    assert table_of([found]) == right[found.number]
                list(ledger.heads())
        except UsageError:
            pass
        assert path.read_bytes() == content
