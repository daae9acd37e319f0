"""`python -m benchmarks.fuzz [FORMAT...]`: hostile files by the thousand; a table by format, exit code 1 with a fault.

Cases run in processes of their own, twenty each, so that what dies takes nothing with it. `--total` gives formats
that are read quickly more files than others. `--keep` leaves the counts of each format, and each fault once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .judge import MOST_BYTES, MOST_S, Depth, Outcome

_AT_ONCE = 20
# A machine that is shared may need so long for the CPU seconds that a case may take.
_MOST_WALL_S = 900
# Of each thousand files, how many are of a format: as many as take equally long, but for those that take longest.
SHARES = {
    "ledger": 220, "launch": 150, "measured": 140, "trace": 110, "report": 90, "nsys": 60, "requests": 50,
    "plan": 35, "defaults": 20, "onnx": 30, "pt2": 30, "system": 25, "prices": 25, "engine": 15, "stack": 12,
    "calibration": 12, "tp-plan": 12, "words": 15, "space": 8, "graph": 8, "csv": 5, "config": 3,
}  # fmt: skip


@dataclass(slots=True)
class Count:
    """What came of the hostile files of one format."""

    tried: int = 0
    depths: Counter[Depth] = field(default_factory=Counter)
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: Outcome, seed: int) -> None:
        """Count one case."""
        self.tried += 1
        self.depths[outcome.depth] += 1
        if outcome.fault:
            self.faults[outcome.fault] += 1
            self.first.setdefault(outcome.fault, f"seed {seed}\n{outcome.told}")

    def kept(self, name: str) -> dict[str, object]:
        """Return what was counted of a format, as JSON can say it."""
        return {"format": name, "tried": self.tried, **{depth: self.depths[depth] for depth in Depth},
                "cpu_s": self.cpu_s, "faults": dict(self.faults), "first": self.first}  # fmt: skip


def main() -> None:
    """Try hostile files of the formats, print the table, and each fault once."""
    from .formats import FORMATS
    from .seeds import prepare

    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}; all by default")
    parser.add_argument("--count", type=int, default=1000, help="files of each format (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first file; the next have the next (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3600, help="at most so long, each format alike (%(default)g)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write what is told of each fault here")
    parser.add_argument("--total", type=int, help="files of all formats together, in place of --count")
    given = parser.parse_args()
    if unknown := set(given.formats) - set(FORMATS):
        parser.error(f"no format {', '.join(sorted(unknown))}; of {', '.join(FORMATS)}")
    print(f"| format | tried | {' | '.join(Depth)} | share | ms | faults |\n|{' --- |' * 8}", flush=True)
    # One thread: these processes are forked, and threads of PyTorch are not.
    os.environ["OMP_NUM_THREADS"] = "1"
    faults = 0
    names = given.formats or [*SHARES]
    prepared = Path(tempfile.mkdtemp())
    with _inside(prepared):
        prepare(prepared)
    for name in names:
        number = given.count if given.total is None else given.total * SHARES[name] // sum(SHARES.values())
        count = _campaign(name, prepared, range(given.seed, given.seed + number), given.seconds / len(names))
        faults += count.faults.total()
        for fault, times in count.faults.most_common():
            print(f"{name}: {fault}: {times}, first {count.first[fault].splitlines()[0]}", flush=True)
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            file = given.keep / f"{name}-{given.seed}.json"
            file.write_text(json.dumps(count.kept(name), indent=1), encoding="utf-8")
    shutil.rmtree(prepared)
    sys.exit(1 if faults else 0)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    os.environ["SLIPSTICK_CACHE"], os.environ["SLIPSTICK_RUNS"] = f"{folder}/cache", f"{folder}/runs"
    try:
        yield
    finally:
        os.chdir(before)


def _campaign(name: str, prepared: Path, seeds: range, seconds: float) -> Count:
    """Try files of a format in a copy of a folder, until all were tried or the time is over."""
    count = Count()
    with tempfile.TemporaryDirectory() as above:
        folder = Path(shutil.copytree(prepared, f"{above}/fuzz"))
        with _inside(folder):
            # What a first case loads is then loaded in all forks of this process.
            _batch(name, seeds[:1], Count())
            end = time.monotonic() + seconds
            for start in range(0, len(seeds), _AT_ONCE):
                if time.monotonic() < end:
                    _batch(name, seeds[start : start + _AT_ONCE], count)
    tried = max(count.tried, 1)
    share, each_ms = f"{count.depths[Depth.DEEP] / tried:.0%}", f"{1000 * count.cpu_s / tried:.1f}"
    cells = (name, count.tried, *(count.depths[depth] for depth in Depth), share, each_ms, count.faults.total())
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return count


def _batch(name: str, seeds: range, count: Count) -> None:
    """Run cases in a fork of this process; what it had not told when it died is a fault of the next case."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _cases(name, seeds, writing)
    os.close(writing)
    told = 0
    with os.fdopen(reading) as lines:
        for line in lines:
            seed, code, depth, fault, text = line.rstrip("\n").split("\t", 4)
            count.add(Outcome(int(code), Depth(depth), fault, text.replace("\\n", "\n")), int(seed))
            told += 1
    _, status, used = os.wait4(child, 0)
    count.cpu_s += used.ru_utime + used.ru_stime
    if told < len(seeds):
        count.add(Outcome(-1, Depth.BEHIND, f"the process died: {status}"), seeds[told])
        if told + 1 < len(seeds):
            _batch(name, seeds[told + 1 :], count)


def _cases(name: str, seeds: range, writing: int) -> None:
    from .formats import tried

    # Whatever happens, a child does not go on as its parent.
    try:
        with os.fdopen(writing, "w", buffering=1) as out:
            for seed in seeds:
                _guard()
                command, outcome = tried(name, random.Random(seed))
                told = f"slipstick {' '.join(command)}\n{outcome.told}" if outcome.fault else ""
                shown = (str(seed), str(outcome.code), outcome.depth, outcome.fault, told)
                clean = [part.replace("\t", " ").replace("\n", "\\n").replace("\r", " ") for part in shown]
                out.write("\t".join(clean).encode("utf-8", "replace").decode() + "\n")
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def _guard() -> None:
    """End this process where a case takes what its judge cannot interrupt: C code that loops, a file that blocks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime) + 3 * MOST_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    # Data, not addresses: V8, which draws pictures, reserves more addresses than a machine has memory.
    data = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (data + 2 * MOST_BYTES, resource.RLIM_INFINITY))
    signal.alarm(_MOST_WALL_S)


if __name__ == "__main__":
    main()
