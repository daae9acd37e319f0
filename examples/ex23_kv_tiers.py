"""Keys and values of earlier prompts in tiers of memory: what a trace of conversations finds, and what it saves.

The trace is Mooncake's of FAST 2025 (12,031 requests of an hour, github.com/kvcache-ai/Mooncake, Apache-2.0). In place
of names of blocks it says with how many blocks of which earlier request a prompt begins. Published of it: a store of 3M
tokens finds 41 % of what an endless one finds, one of 50M tokens nearly all (Qin et al., FAST 2025, figure 9 and
section 5.3.1). Which blocks that store gives up is not said there; here it is the least recently used.
"""

import csv
import gzip
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.cost.serving.traffic.prefixes import Tier, reused
from slipstick.cost.serving.traffic.trace_files import read_trace

TRACE = Path(__file__).parent / "data" / "mooncake_conversation.csv.gz"
BLOCK, ENDLESS = 512, 1e15
STORES = (1e6, 3e6, 10e6, 30e6, 50e6)
PUBLISHED = {3e6: 41.0, 50e6: 100.0}
TIERS = ("", "host=1TB", "host=4TB", "host=1TB,ssd=20TB@2GB/s", "host=1TB,ssd=20TB@6GB/s", "host=20TB")


def as_jsonl(folder: Path) -> Path:
    """Write the trace with names of blocks again: a prompt begins with blocks of an earlier one, the rest are new."""
    names: list[list[int]] = []
    fresh = 0
    target = folder / "conversation.jsonl"
    with gzip.open(TRACE, "rt", encoding="utf-8") as given, target.open("w", encoding="utf-8") as out:
        for number, row in enumerate(csv.DictReader(given)):
            prompt, back, shared = (int(row[name]) for name in ("prompt", "back", "shared"))
            new = -(-prompt // BLOCK) - shared
            names.append([*(names[number - back][:shared] if back else []), *range(fresh, fresh + new)])
            fresh += new
            line = {"timestamp": int(row["arrival_ms"]), "input_length": prompt, "output_length": int(row["output"]),
                    "hash_ids": names[-1]}  # fmt: skip
            out.write(f"{json.dumps(line)}\n")
    return target


def hits(trace: Path) -> Iterator[list[Cell]]:
    """Yield what stores of so many tokens find, as a part of what an endless one does."""
    traffic = read_trace(trace)
    found = [float(reused(traffic, (Tier("store", size),)).cached.sum()) for size in (*STORES, ENDLESS)]
    for size, tokens in zip(STORES, found, strict=False):
        share = 100 * tokens / found[-1]
        published = PUBLISHED.get(size)
        error: Cell = "" if published is None else share - published
        yield ["store", f"{size / 1e6:.0f}M tokens", share, "" if published is None else published, error, "", "", ""]


def latencies(trace: Path, full: bool) -> Iterator[list[Cell]]:
    """Yield what requests see of a server with tiers."""
    for tiers in TIERS if full else TIERS[:1] + TIERS[1::2]:
        words = {"kv_tiers": tiers} if tiers else {}
        found = slipstick.serve(
            "llama-3.1-70b", "dgx-h100", tp=8, gpus=32, serve=f"{trace},n={4000 if full else 600}",
            **words,  # type: ignore[arg-type]
        )  # fmt: skip
        run_of = found.answer.simulated
        assert run_of is not None
        share = 100 * float(run_of.served.cached.sum() / run_of.served.prompt.sum())
        yield ["server", tiers or "none", share, "", "", run_of.ttft.mean, run_of.ttft.p90, found.metrics["tpot_s"]]


def make(full: bool) -> Table:
    """Look at stores of the whole trace, and at a server of its first requests."""
    columns = ["of", "tiers", "found (%)", "published (%)", "error (points)", "TTFT (s)", "TTFT p90 (s)", "TPOT (s)"]
    with tempfile.TemporaryDirectory() as folder:
        trace = as_jsonl(Path(folder))
        rows = [*hits(trace), *latencies(trace, full)]
    return Table(columns, rows, [
        "Of stores: part of what an endless store finds. Of servers: part of all tokens of prompts.",
        "32 H100 as four replicas of Llama 3.1 70B under vLLM; sizes of tiers are of all replicas, rates of each GPU.",
        "Loads do not wait for one another, and a request finds what those before it left, done or not.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw what stores find beside what was published, and TTFT over tiers."""
    groups = table.groups("of")
    panels[0].semilogx(STORES, groups["store"].numbers("found (%)"), "o-", label="least recently used")
    panels[0].semilogx(list(PUBLISHED), list(PUBLISHED.values()), "kx", label="published")
    panels[0].set(xlabel="tokens that the store holds", ylabel="found, of what an endless store finds (%)")
    servers = groups["server"]
    names = [str(cell).replace(",", "\n") for cell in servers.column("tiers")]
    for column in ("TTFT p90 (s)", "TTFT (s)"):
        panels[1].bar(names, servers.numbers(column), width=0.6, label=column)
    panels[1].tick_params(axis="x", labelsize="x-small")
    for panel in panels:
        panel.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
