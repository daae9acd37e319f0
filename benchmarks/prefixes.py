"""Reuse of prefixes in a trace over the size of the store: `python -m benchmarks.prefixes conversation_trace.jsonl`.

Reads traces with `hash_ids`, as github.com/kvcache-ai/Mooncake has them in FAST25-release/traces, and prints which part
of what an endless store would find is found in stores of so many tokens.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from slipstick.cost.serving.traffic.prefixes import Tier, reused
from slipstick.cost.serving.traffic.trace_files import read_trace

from .markdown import table

SIZES, ENDLESS = (3e6, 10e6, 30e6, 50e6), 1e15


def main() -> None:
    """Print the table of each trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    rows = []
    for path in parser.parse_args().traces:
        traffic = read_trace(path)
        found = [float(reused(traffic, (Tier("store", size),)).cached.sum()) for size in (*SIZES, ENDLESS)]
        most = found[-1] / float(traffic.requests.prompt.sum())
        rows.append((path.stem, f"{100 * most:.1f} %", *(f"{100 * one / found[-1]:.1f} %" for one in found[:-1])))
    print(table(("trace", "of an endless store", *(f"{size / 1e6:.0f}M tokens" for size in SIZES)), rows))


if __name__ == "__main__":
    main()
