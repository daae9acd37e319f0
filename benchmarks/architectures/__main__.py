"""What the architectures answer, and their facts: `python -m benchmarks.architectures [--answers]`.

Facts come first; with `--answers` each architecture runs prompts, answers and training under several plans as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

from ..markdown import short, table
from .cases import ARCHITECTURES, TABLES, Architecture
from .facts import SYSTEM, facts

# Positions of a sequence: 81 frames of 720p in Wan, the features of the ranking model, else what is usual.
_LENGTHS = {"video": 75_600, "ranking": TABLES}
_WORDS = {"tp8": {"tp": 8}, "tp2 cp4": {"tp": 2, "cp": 4}}


def plans(one: Architecture) -> dict[str, dict[str, int]]:
    """Degrees by how they are called."""
    return {"tp1": {}, **_WORDS, **({f"ep{one.experts}": {"ep": one.experts}} if one.experts > 1 else {})}


def answer(one: Architecture, workload: Workload, degrees: dict[str, int]) -> str:
    """Return the time of a step, with its memory where that does not fit, or why there is none."""
    length = next((n for begin, n in _LENGTHS.items() if one.name.startswith(begin)), 8192)
    train, decodes = workload is Workload.TRAIN, workload is Workload.DECODE
    batch = {"ranking": 8192, "video": 1}.get(one.name.partition(",")[0], 16 if decodes else 1)
    gpus = one.gpus if train else degrees.get("tp", 1) * degrees.get("cp", 1) * degrees.get("ep", 1)
    family = Family(
        workload=workload, ep="ep" in degrees, cp="allgather" if "cp" in degrees else "none", zero=1 if train else 0,
        recompute="full" if train else "none",
    )  # fmt: skip
    cached = {"kv_len": length} if decodes else {}
    try:
        plan = make_plan(num_gpus=gpus, family=family, micro_batch=batch, seq_len=length, **cached, **degrees)
        found = estimate(one.graph(workload), load_system(SYSTEM), plan)
    except SlipstickError as error:
        return f"refused: {short(str(error))}"
    peak = found.metrics["peak_mem_bytes"] / 2**30
    time_s = f"{found.metrics['step_time_s'] * 1e3:,.4g} ms"
    return time_s if found.fits else f"{time_s}, does not fit ({peak:,.0f} GiB)"


def answers() -> Iterator[tuple[str, ...]]:
    """Yield architecture, workload and what comes of each plan; decode steps only of what has caches."""
    for one in ARCHITECTURES:
        for workload in (Workload.PREFILL, Workload.DECODE, Workload.TRAIN):
            if workload is not Workload.DECODE or one.given == "config":
                found = {said: answer(one, workload, degrees) for said, degrees in plans(one).items()}
                yield one.name, str(workload), *(found.get(said, "-") for said in ("tp1", *_WORDS, f"ep{one.experts}"))


def facts_table() -> str:
    """Return the facts as a table."""
    rows = [
        (name, next(a.given for a in ARCHITECTURES if a.name == name), fact.what, fact.source, f"{fact.theirs:,.5g}",
         f"{fact.ours:,.5g}", f"{100 * fact.error:+.2f} %")
        for name, fact in facts()
    ]  # fmt: skip
    return table(("architecture", "given as", "fact", "source", "there", "here", "error"), rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", action="store_true", help="run plans as well, some minutes")
    given = parser.parse_args()
    print(facts_table())
    if given.answers:
        print()
        print(table(("architecture", "workload", "tp1", *_WORDS, "ep"), answers()))


if __name__ == "__main__":
    main()
