"""A cluster of Ray that a search starts: heard on this machine alone, with a secret, in the folder of the search."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="starts a cluster; install slipstick[ray]")
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="asks who listens")

# It finds something, says so, and waits.
SCRIPT = """
import sys
from slipstick.explore.executors.on_ray import OnRay
from tests.explore.odd_jobs import StuckJob
job = StuckJob()
run = OnRay(num_workers=1).run(job, job.blocks())
next(run)
print("found", flush=True)
sys.stdin.read()
"""
# What others may have set for clusters of their own.
LAX = {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}


def test_a_cluster_of_our_own_is_heard_here_alone_and_has_a_secret(jobs_are_importable: None, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, **LAX},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as search:
        assert search.stdout is not None
        assert search.stdin is not None
        assert search.stdout.readline() == "found\n"
        processes = psutil.Process(search.pid).children(recursive=True)
        heads = [process.environ() for process in processes if process.name() == "gcs_server"]
        workers = [process.cwd() for process in processes if "RayWorker" in " ".join(process.cmdline())]
        lines = [line for process in processes for line in process.net_connections("inet")]
        search.stdin.close()
    listening = {line.laddr.ip for line in lines if line.status == psutil.CONN_LISTEN}
    assert listening
    assert {ip for ip in listening if not ip_address(ip.removeprefix("::ffff:")).is_loopback} == set()
    assert [(head["RAY_AUTH_MODE"], len(head["RAY_AUTH_TOKEN"])) for head in heads] == [("token", 64)]
    assert workers == [str(tmp_path)]
