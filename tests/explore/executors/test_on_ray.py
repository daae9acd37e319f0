"""Searches on a real cluster of Ray, of several worker processes on this machine: the same bits, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from slipstick.explore.block import Found
from slipstick.explore.executors import on_ray
from slipstick.explore.executors.on_ray import OnRay
from slipstick.explore.executors.ray_cluster import cluster
from slipstick.ir.errors import UsageError

from ..fake_job import FakeJob
from ..odd_jobs import StuckJob, TellingJob, same

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="starts a cluster; install slipstick[ray]"),
    pytest.mark.skipif(sys.platform == "win32", reason="kills processes"),
]

SCRIPT = """
import sys
from slipstick.explore.executors.on_ray import OnRay
from tests.explore.fake_job import FakeJob
from tests.explore.odd_jobs import same
job = FakeJob(num_candidates=16)
print(same(list(OnRay(sys.argv[1]).run(job, job.blocks())), job))
"""


@pytest.fixture(scope="module")
def address(jobs_are_importable: None) -> Iterator[str]:
    """A cluster of two workers that every search of this module finds itself connected to."""
    with cluster(None, 2, 10.0):
        import ray

        yield ray.get_runtime_context().gcs_address


def test_a_cluster_finds_what_one_process_finds_though_a_worker_is_killed(address: str) -> None:
    job, found = TellingJob(num_candidates=240, pause_s=0.01), list[Found]()
    for number, one in enumerate(OnRay().run(job, job.blocks())):
        found.append(one)
        if number == 10:
            os.kill(int(one.columns["process"][0]), signal.SIGKILL)
    told = {name: {float(value) for one in found for value in one.columns[name]} for name in ("process", "threads")}
    assert same(found, job)
    assert told["threads"] == {1.0}
    assert len(told["process"]) >= 2
    assert float(os.getpid()) not in told["process"]
    assert all(column.flags.writeable for one in found for column in one.columns.values())


def test_candidates_that_kill_or_fail_are_told_and_all_others_are_found(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = FakeJob(num_candidates=24, at_once=2, killers=(9,), failures=(18,))
    found = sorted(OnRay(address).run(job, job.blocks()), key=lambda f: f.number)
    assert [line for f in found for line in f.crashed] == [
        "candidate 9 of part 0: killed its worker (ActorDiedError, SYSTEM_ERROR)",
        "candidate 18 of part 0: ZeroDivisionError: candidate 18 (fake_job.py, line 59)",
    ]
    rows = [n for n in range(0, 24, 2) if n != 18]
    assert np.concatenate([f.columns["number"] for f in found]).tolist() == rows
    # Ray tells of workers that died a moment later, and not on our stdout.
    time.sleep(0.5)
    assert capfd.readouterr() == ("", "")


def test_a_machine_with_another_version_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "versions", lambda: "slipstick 0.0.9+0123456789ab with numpy 2.0.0")
    job = FakeJob()
    with pytest.raises(
        UsageError, match=r"not mixed: .* has slipstick .* this machine slipstick 0\.0\.9\+0123456789ab"
    ):
        list(OnRay().run(job, job.blocks()))


def test_another_address_than_the_one_connected_to_is_refused(address: str) -> None:
    job = FakeJob()
    with pytest.raises(UsageError, match=rf"already connected to the Ray cluster at {address}, not head:6379"):
        list(OnRay("head:6379").run(job, job.blocks()))


def test_closing_ends_workers_in_the_middle_of_what_they_do(address: str) -> None:
    import ray

    job = StuckJob()
    run = OnRay(num_workers=1).run(job, job.blocks())
    next(run)
    run.close()
    until = time.monotonic() + 10.0
    while (left := ray.available_resources().get("CPU")) != 2.0 and time.monotonic() < until:  # type: ignore[no-untyped-call]
        time.sleep(0.05)
    assert left == 2.0


def test_another_process_connects_by_address_and_says_nothing_of_its_own(address: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    # A cluster that Ray starts asks for the token that it left in the home folder.
    done = subprocess.run(
        [sys.executable, str(script), address],
        env={**os.environ, "RAY_AUTH_MODE": "token"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
