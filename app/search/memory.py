"""Memory of a search process, and the number of rows that it may hold at once."""

from __future__ import annotations

import gc

from ...ir.errors import UsageError
from ...ir.units import format_bytes, parse_quantity

# What a candidate takes while its block is worked on, measured on families of dense and MoE models; the rest of a
# process (Python, the traced graph, what is lowered) comes before it.
_BYTES_A_CANDIDATE = 40_000
BYTES_OF_A_PROCESS = 500 * 2**20
_LEAST_ROWS, MOST_ROWS = 256, 16384


def rows_at_once(max_memory: str) -> int:
    """Return how many candidates a block may have, so that a process stays within its memory.

    UsageError for less than a process takes by itself.

    >>> rows_at_once("2GiB"), rows_at_once("600MiB")
    (16384, 2621)
    """
    given = parse_quantity(max_memory, "B").value_si
    rows = int((given - BYTES_OF_A_PROCESS) // _BYTES_A_CANDIDATE)
    if rows < _LEAST_ROWS:
        least = BYTES_OF_A_PROCESS + _LEAST_ROWS * _BYTES_A_CANDIDATE
        raise UsageError(f"--max-memory {max_memory}: a process takes {format_bytes(least)} at least")
    return min(rows, MOST_ROWS)


# Objects made between two collections, and collections of each kind between two of the next: a search keeps hundreds of
# thousands in its graphs, and makes few circles.
_SELDOM = (50_000, 20, 20)


def collect_seldom() -> None:
    """Collect garbage again where the command line has turned that off: a search is long, what it leaves must go.

    What is loaded by now stays; a program that calls us keeps the collector as it has it.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        gc.enable()
