"""Machines of a Ray cluster that are lost in the middle of a search, and clusters that are lost as a whole."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .search import ROOT, Ended, Row, begun, called, children, exported, prepared, ran, resumed

_BETWEEN_S = (2.0, 6.0)
_LOST = 2
# What C++ of Ray writes into logs; none of it may reach people.
_RAW = ("core_worker", "raylet.cc", " E ", "*** SIG", "[state-dump]", "gcs_", "Traceback")


def of_nodes(folder: Path, losses: int, draw: random.Random) -> Row:
    """Take machines away from a cluster of three, one after another, and bring another in place of each."""
    from ray.cluster_utils import Cluster

    prepared(folder)
    ran(folder, begun("nodes"))
    whole = exported(folder, "nodes")
    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    lost = wrong = searches = done = 0
    try:
        while lost < losses:
            searches += 1
            runs, at = f"node{searches}", time.monotonic() + 10.0

            def lose(pid: int, most: int = losses - lost) -> bool:
                nonlocal at, done
                if time.monotonic() < at or done >= most:
                    return False
                at, done = time.monotonic() + draw.uniform(*_BETWEEN_S), done + 1
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                nodes.append(cluster.add_node(num_cpus=1))
                return True

            done = 0
            words = [*begun(runs), "--executor", "ray", "--address", cluster.address]
            found = ran(folder, words, lose)
            lost += found.times
            wrong += found.code != 0 or bool(_raw(found)) or exported(folder, runs) != whole
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
    told = f"{searches} searches on clusters of three machines; each went on by itself to the same rows"
    return Row("loss of a machine of a Ray cluster", lost, wrong, told)


def of_clusters(folder: Path, losses: int, draw: random.Random) -> list[Row]:
    """Kill parts of the cluster that a search starts for itself, and the head node of one that it joined."""
    prepared(folder)
    ran(folder, begun("clusters"))
    whole = exported(folder, "clusters")
    rows = []
    for what, part in (("raylet", "raylet/raylet"), ("agent", "ray::RuntimeEnv"), ("head", "gcs_server")):
        wrong = again = 0
        for number in range(losses):
            runs = f"{what}{number}"
            found = ran(folder, [*begun(runs), "--executor", "ray", "--jobs", "2"], _once(part, draw))
            if found.code == _LOST:
                again += 1
                wrong += "resume with" not in found.err
                found = ran(folder, resumed(runs))
            wrong += found.code != 0 or bool(_raw(found)) or exported(folder, runs) != whole
        told = (
            f"a cluster of the search's own: {losses - again} went on by themselves, {again} ended with words and exit"
        )
        rows.append(Row(f"kill -9 of the {what} of Ray", losses, wrong, f"{told} code {_LOST} and were resumed"))
    return rows


def _once(part: str, draw: random.Random) -> Callable[[int], bool]:
    """Return what kills a part of Ray below a process, some seconds after it is there."""
    at = 0.0

    def kill(pid: int) -> bool:
        nonlocal at
        found = [child for child in children(pid) if part in called(child)]
        if not found or at == float("inf"):
            return False
        at = at or time.monotonic() + draw.uniform(4.0, 9.0)
        if time.monotonic() < at:
            return False
        at = float("inf")
        with suppress(OSError):
            os.kill(found[0], signal.SIGKILL)
        return True

    return kill


def _raw(found: Ended) -> list[str]:
    """Return lines of C++ among what people see."""
    return [line for line in (found.out + found.err).splitlines() if any(word in line for word in _RAW)]
