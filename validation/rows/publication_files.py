"""The YAML beside a table of measurements, over what is common to all tables; all its faults at once, with lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, reduce
from pathlib import Path

from ...backends.machine.files.faults import FileFault, FileOrigin, all_of, in_files
from ...backends.machine.files.section import inside
from ...backends.machine.files.shapes import Intake
from ...backends.machine.files.system_tree import read_tree
from ...ir.errors import did_you_mean
from ...ir.text.untrusted import read_settings
from .formulas import columns_of
from .publications import FORMULA, KnownCells, Publication, Rule

COMMON = Path(__file__).with_name("common.yaml")
# Columns that judges read beside those of numbers; a table need not have them.
SETTINGS = frozenset(
    (
        "accelerator", "activation_recompute", "async_tp", "attention", "cache_utilization", "capacity", "cp_method",
        "dataset", "deterministic_mode", "dist_optimizer", "early_stop", "engine", "family", "fits", "fp8_attention",
        "fp8_output_proj", "fp8_param_gather", "fsdp_or_zero", "grad_dtype", "kv_dtype", "length_share", "lora_modules",
        "lora_rank", "max_batched_tokens", "max_num_seqs", "measured_or_analytical", "measurement",
        "memory_utilization", "mla", "model", "mtp", "note", "offline", "precision", "recompute_modules", "requests",
        "routing_nodes", "samples_per_s", "sequence_parallel", "stack", "step_time_s", "step_time_s_derived", "swiglu",
        "tied_embeddings", "tokens_per_s_per_gpu", "untied_embeddings", "world_bus_gb_per_s",
    )
)  # fmt: skip


@cache
def common() -> Publication:
    """Return what is known of every table."""
    return _read(COMMON, "every table")["*"]


def publications_beside(table: Path, columns: Iterable[str], data_sets: Sequence[str]) -> Callable[[str], Publication]:
    """Return what finds the publication of a data set, with what is common to all tables beneath it.

    SystemFileError lists what is wrong with the file beside the table: keys, columns and data sets that are not there.
    """
    path = table.with_suffix(".yaml")
    own = _read(path, table.name) if path != table and path.is_file() else {}
    faults = [*_unused(own, data_sets), *_unknown(own, {*columns, *SETTINGS})]
    if faults:
        raise all_of(_title(path, table.name), faults, _lines(path))

    @cache
    def of(data_set: str) -> Publication:
        laid = sorted((name for name in own if fnmatchcase(data_set, name)), key=lambda name: name != data_set)
        return reduce(Publication.over, [*(own[name] for name in laid), common()])

    return of


def _title(path: Path, table: str) -> str:
    return f"'{path}', which says what is known of {table},"


def _read(path: Path, table: str) -> dict[str, Publication]:
    intake, form = Intake(), inside(Publication)
    tree = read_tree(read_settings(path), str(path))
    found = {name: form.read(one, (name,), name, intake) for name, one in tree.items()}
    if intake.faults:
        raise all_of(_title(path, table), intake.faults, _lines(path))
    return {name: one for name, one in found.items() if one is not None}


def _lines(path: Path) -> Callable[[FileFault], str]:
    return in_files([FileOrigin((), str(path), path)])


def _unused(own: dict[str, Publication], data_sets: Sequence[str]) -> Iterator[FileFault]:
    known = sorted(set(data_sets))
    for name in own:
        if not any(fnmatchcase(data_set, name) for data_set in known):
            near = did_you_mean(name, known)
            yield FileFault((name,), name, f"no row has this data set{near} data sets are {', '.join(known)}")


def _unknown(own: dict[str, Publication], columns: set[str]) -> Iterator[FileFault]:
    """Yield columns of rules that no table and no judge knows."""
    for name, one in own.items():
        known = columns | set(one.notes)
        for key in ("corrected", "known", "assumed", "unlike", "outliers", "causes", "not_fitted"):
            rules: Sequence[Rule] = getattr(one, key)
            for place, rule in enumerate(rules):
                for below, column in _columns(rule):
                    if column not in known:
                        near = did_you_mean(column, sorted(known))
                        path = f"{name}.{key}.{place}.{'.'.join(below)}"
                        what = f"no column is '{column}'{near} columns are {', '.join(sorted(known))}"
                        yield FileFault((name, key, place, *below), path, what)


def _columns(rule: Rule) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each column that a rule names, with the keys to it."""
    yield from ((("when", key), column) for key in rule.when for column in columns_of(key))
    for cell, text in rule.cells.items() if isinstance(rule, KnownCells) else ():
        yield ("cells", cell), cell
        if text.startswith(FORMULA):
            yield from ((("cells", cell), column) for column in columns_of(text.removeprefix(FORMULA)))
