"""Machines of a Ray cluster that are lost in the middle of a search, and clusters that are lost as a whole."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .kills import num_blocks
from .search import ROOT, Ended, Row, begun, called, children, exported, prepared, ran, resumed

_BETWEEN_S = (2.0, 6.0)
_LOST = 2
# Parts of a cluster by a part of their command line.
_PARTS = {
    "raylet": "raylet/raylet",
    "agent": "dashboard/agent",
    "agent of environments": "runtime_env",
    "head": "gcs_server",
    "process that speaks with Ray": "ray_driver",
}
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
    """Kill parts of the cluster that a search starts for itself, what speaks with it, and a search on a cluster."""
    prepared(folder)
    ran(folder, begun("clusters"))
    whole = exported(folder, "clusters")
    rows = []
    for what, part in _PARTS.items():
        wrong = again = lost = number = 0
        while lost < losses and number < 3 * losses:
            number += 1
            runs = f"{what.replace(' ', '-')}{number}"
            found = ran(folder, [*begun(runs), "--executor", "ray", "--jobs", "2"], _once(part, draw, folder / runs))
            # A search may end before anything is lost.
            lost += found.times
            if found.code == _LOST:
                again += 1
                wrong += "resume with" not in found.err
                found = ran(folder, resumed(runs))
            wrong += found.code != 0 or bool(_raw(found)) or exported(folder, runs) != whole
        told = f"a cluster of the search's own: {lost - again} went on by themselves, {again} ended with words and exit"
        rows.append(Row(f"kill -9 of the {what} of Ray", lost, wrong, f"{told} code {_LOST} and were resumed"))
    return rows


def of_heads(folder: Path, losses: int, draw: random.Random) -> list[Row]:
    """Lose clusters that searches joined: their head node alone, or the machine of the search with it."""
    prepared(folder)
    ran(folder, begun("heads"))
    whole = exported(folder, "heads")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    prepared(elsewhere)
    wrong = [0, 0]
    for number in range(losses):
        for at, is_driver_lost in enumerate((False, True)):
            runs = f"head{number}-{at}"
            found = _joined(folder, runs, draw, is_driver_lost)
            if is_driver_lost:
                wrong[at] += found.code != -signal.SIGKILL
            else:
                wrong[at] += found.code != _LOST or "resume with" not in found.err or bool(_raw(found))
            # On another machine: another folder, and of the first one nothing but the ledger.
            found = ran(elsewhere, [*resumed(str(folder / runs)), "--executor", "processes", "--jobs", "2"])
            wrong[at] += found.code != 0 or bool(_raw(found)) or exported(folder, runs) != whole
    told = "a cluster that the search joined: it ended with words and exit code"
    elsewhere_told = "resumed in another folder by worker processes, with nothing but the ledger on the shared disk"
    return [
        Row("loss of the head node of Ray", losses, wrong[0], f"{told} {_LOST}, and was resumed from its ledger"),
        Row("loss of the machine of a search with its cluster", losses, wrong[1], elsewhere_told),
    ]


def _joined(folder: Path, runs: str, draw: random.Random, is_driver_lost: bool) -> Ended:
    """Let a search join a cluster of one machine, and lose the cluster, and the search where that is wanted."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    after, is_lost = draw.uniform(10.0, 100.0), False

    def lose(pid: int) -> bool:
        nonlocal is_lost
        if is_lost or num_blocks(folder / runs / "tiny-1.sqlite") < after:
            return False
        is_lost = True
        if is_driver_lost:
            os.kill(pid, signal.SIGKILL)
        cluster.shutdown()  # type: ignore[no-untyped-call]
        return True

    try:
        return ran(folder, [*begun(runs), "--executor", "ray", "--address", str(cluster.address)], lose)
    finally:
        if not is_lost:
            cluster.shutdown()  # type: ignore[no-untyped-call]


def _once(part: str, draw: random.Random, runs: Path) -> Callable[[int], bool]:
    """Return what kills a part of Ray below a process, once a search has found some blocks."""
    after, is_lost = draw.uniform(2.0, 100.0), False

    def kill(pid: int) -> bool:
        nonlocal is_lost
        if is_lost or num_blocks(runs / "tiny-1.sqlite") < after:
            return False
        found = [child for child in children(pid) if part in called(child)]
        for child in found[:1]:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
                is_lost = True
        return is_lost

    return kill


def _raw(found: Ended) -> list[str]:
    """Return lines of C++ among what people see."""
    return [line for line in (found.out + found.err).splitlines() if any(word in line for word in _RAW)]
