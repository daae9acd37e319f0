"""Measured probes as tables in the format that `slipstick validate` judges."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ...ir.text.files import write_whole
from .kernels.probe import Measured

_FIRST = ("id", "dataset", "source", "status", "accelerator", "framework")
_LAST = ("time_us", "note")
# The columns in which tables differ, in the order of the published ones.
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gemm": ("kernel", "dtype", "out_dtype", "batch", "m", "n", "k", "layout", "timing_method"),
        "attention": ("kernel", "phase", "dtype", "kv_dtype", "batch", "q_len", "kv_len", "heads", "kv_heads",
                      "head_dim", "causal", "kv_cache_bytes"),
        "elementwise": ("op", "dtype", "rows", "cols", "n_elements", "bytes_moved_min", "timing_method"),
        "collectives": ("collective", "interconnect", "n_gpus", "n_nodes", "gpus_per_node_used", "size_bytes",
                        "size_convention", "library"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """What every row says of where it comes from.

    Attributes:
        name: of the device, as in names of files: `cpu`.
        accelerator: the system file, which lies beside the tables.
        framework: what ran.
        source: which command, which versions, when.
        timing_method: how it was timed.
    """

    name: str
    accelerator: str
    framework: str
    source: str
    timing_method: str


def rows_of(measured: Sequence[Measured], origin: Origin) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table."""
    tables: dict[str, list[dict[str, str]]] = {}
    for m in measured:
        tables.setdefault(m.probe.table, []).append(_row(m, origin))
    return tables


def write_tables(tables: Mapping[str, Sequence[Mapping[str, str]]], folder: Path) -> tuple[Path, ...]:
    """Write one file a table, each whole; return their paths."""
    paths = []
    for name, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(
            text, (*_FIRST, *COLUMNS[name], *_LAST), restval="", extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
        paths.append(folder / f"{name}.csv")
        write_whole(paths[-1], text.getvalue())
    return tuple(paths)


def _row(m: Measured, origin: Origin) -> dict[str, str]:
    cells = {
        "id": f"{origin.name}_{m.probe.table}_{m.probe.name}", "dataset": f"measured_{m.probe.table}",
        "source": origin.source, "status": "measured", "accelerator": origin.accelerator,
        "framework": origin.framework, **m.probe.cells, "time_us": f"{m.time_s * 1e6:.5g}",
        "timing_method": origin.timing_method, "note": f"{origin.timing_method}; spread {m.spread:.1%}",
    }  # fmt: skip
    return {name: str(value) for name, value in cells.items()}
