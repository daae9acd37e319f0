"""Axes of a search as typed: flags, `--fix`, `--vary` and a space file in one record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from types import MappingProxyType

import numpy as np

from ...ir.errors import UnknownNameError, UsageError
from ...ir.plan.word import SearchAxis, Value
from ...ir.plan.words import WORDS
from ...ir.records import dataclass
from ...ir.units import parse_quantity, split_quantity, units_of
from ..arguments.options import Opt, options_of
from ..arguments.search import PlainRequestArgs, PoolSearchArgs
from ..arguments.serving import CachedArgs, EngineArgs, LimitArgs, TargetArgs, WorkerArgs
from ..plans.words import LOWERED, STEP
from .sampling import Sampling

# Every legal value: what an axis of numbers is by default of it.
ALL = "all"


def _of(axis: SearchAxis) -> Mapping[str, str]:
    """The words of plans of which a search makes an axis of a kind, and the fields of the space."""
    return MappingProxyType({name: row.field for name, row in WORDS.items() if row.word.axis is axis})


NUMBERS, CHOICES = _of(SearchAxis.NUMBER), _of(SearchAxis.CHOICE)
# Flags of which a space of plans knows every legal value.
_FREE = frozenset({*NUMBERS, *CHOICES} - {"gpus", "gbs"})
# Words of servers, of which a search has a use.
SERVER = (EngineArgs, PlainRequestArgs, CachedArgs, TargetArgs, LimitArgs, PoolSearchArgs, WorkerArgs)
# A million systems are a slip of the count, and each value of a flag multiplies the plans.
MOST_SYSTEMS, _MOST_VALUES = 10_000, 1_000
# Flags that one search has one of, though each could be said of a plan.
SINGLE = frozenset(
    {
        *_of(SearchAxis.ONE), "images", "dims", "inputs", "loss", "fixed", "leaves", "caches", "dtype", "system",
        "stack", "as_of", "calibration", "prices", "year", "cuda_graph", "overrides", "basis", "rent", "allow_unpriced",
        "flops_convention", "cache", "quiet", "isl", "osl", "cached", "prefix_hit", "shared_prefix", "ttft", "tpot",
        "max_num_seqs", "block_size", "memory_utilization", "dual_batch", "pools", "kv_bandwidth", "stream_kv",
    }
)  # fmt: skip
# Flags that a search has no use for.
REFUSED = frozenset(
    {
        "tokens", "samples", "steps", "checkpoint_every", "checkpoint_bandwidth", "checkpoint_node_bandwidth",
        "checkpoint_bytes", "checkpoint_stall", "checkpoint_async", "mtbf", "restart_time", "passes", "stop_after",
        "sites", "site_bandwidth", "site_latency", "sync_every", "sync_dtype", "sync_fragments", "sync_overlap",
        "dump_after", "dump_dir", "time_passes", *_of(SearchAxis.NONE),
    }
)  # fmt: skip
# Flags whose value is a list already: as a value of an axis its words are joined by a plus.
_LISTS = frozenset(name for name, row in WORDS.items() if row.is_list)
_NAMED: Mapping[str, Opt] = MappingProxyType(
    {
        name.removeprefix("--").replace("_", "-"): opt
        for opt in options_of(*STEP, *LOWERED, *SERVER).values()
        for name in (*opt.names, opt.field)
        if name.startswith("--") or name == opt.field
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a search is asked for.

    Attributes:
        model: as on any command line.
        flags: by the parameter of its flag, what each may be: one value, several, or `all`.
        paths: by its path, what each number of the systems may be; one text where it is set.
        objectives: what should be small or large.
        constraints: what a plan must keep.
        rows_at_once: candidates of a block, of a run that is gone on with; None for as many as memory allows.
        usual: flags that nobody typed: values that are tried where nothing else is said.
        sampling: how many machines are tried, and how they are chosen, where not all of them are.
    """

    model: str
    flags: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    rows_at_once: int | None = None
    usual: frozenset[str] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)

    def axis(self, name: str) -> tuple[Value, ...]:
        """Return what was said of a flag; nothing where it may be anything."""
        given = self.flags.get(name, ())
        return () if given == (ALL,) else given

    def words(self, name: str) -> tuple[Value, ...]:
        """Return what was said of a flag of words or of a switch; all that it knows where all of them are tried."""
        return words_of(name) if self.flags.get(name) == (ALL,) else self.axis(name)

    def one(self, name: str, usual: Value) -> Value:
        """Return the one value of a flag that a search has one of."""
        return self.flags.get(name, (usual,))[0]

    def over(self, below: Asked) -> Asked:
        """Return both, this one on top: the command line overrides its file."""
        return replace(
            self,
            model=self.model or below.model,
            flags={**below.flags, **self.flags},
            paths={**below.paths, **self.paths},
            objectives=self.objectives or below.objectives,
            constraints=tuple(dict.fromkeys((*below.constraints, *self.constraints))),
            rows_at_once=self.rows_at_once or below.rows_at_once,
            sampling=self.sampling.over(below.sampling),
        )


def parameter(key: str) -> str:
    """Return the parameter of a flag by any of its names; UnknownNameError with the nearest few.

    >>> parameter("cp-method"), parameter("tensor-model-parallel-size"), parameter("dp_shard")
    ('cp_method', 'tp', 'dp_shard')
    """
    name = key.removeprefix("--").replace("_", "-")
    if name not in _NAMED:
        known = [key for key, opt in _NAMED.items() if opt.field not in REFUSED and "_" not in key]
        near = " or ".join(f"'{one}'" for one in get_close_matches(name, known, n=3))
        raise UnknownNameError(
            f"unknown axis '{key}'; {f'did you mean {near}? ' if near else ''}an axis is a flag of `slipstick search "
            "--help` without its dashes, or a number of the system by its path, as system.hbm.bandwidth"
        )
    return _NAMED[name].field


def words_of(name: str) -> tuple[Value, ...]:
    """Return all words of a flag that has a choice of them, or both of a switch; nothing for any other.

    >>> words_of("mla"), words_of("fuse"), words_of("seq")
    (('latent', 'expanded'), (True, False), ())
    """
    opt = _NAMED[name.replace("_", "-")]
    if name in WORDS and WORDS[name].word.others:
        return WORDS[name].word.choices
    return (True, False) if opt.is_switch else opt.choices


def takes_many(name: str) -> bool:
    """Whether a flag that a search has one of is several texts together: what a model is given."""
    return name in SINGLE and _NAMED[name.replace("_", "-")].is_many


def words_of_a_space() -> list[Opt]:
    """Return the words that a search has a use for."""
    known = {opt.field: opt for opt in _NAMED.values()}
    return [opt for name, opt in known.items() if name not in REFUSED | {"quiet", "cache", "overrides"}]


# Parts of machines whose names are one word: `backends.prices.parts` has what they are.
PARTS = ("nic", "scale-up", "rack")


def is_path(key: str) -> bool:
    """Whether a key is the path of a number of the system, or a part of it, and no flag.

    >>> is_path("chip.memory.hbm.bandwidth"), is_path("nic"), is_path("cp-method")
    (True, True, False)
    """
    return "." in key or key in PARTS


def values_of(key: str, text: str | Sequence[object]) -> tuple[Value, ...]:
    """Return the values that a text, or a list of a file, has for a flag; UsageError says what is wrong with one.

    >>> values_of("tp", "1,2,8"), values_of("sp", "yes"), values_of("offload", "none,optimizer+params")
    ((1, 2, 8), (True,), (None, 'optimizer,params'))
    """
    name = parameter(key)
    if isinstance(text, str):
        words = [text] if takes_many(name) else [word.strip() for word in text.split(",")]
    else:
        words = [str(word) for word in text]
    if not words or not all(words):
        raise UsageError(f"{key}: no value in '{text}': a value, or several with commas between them")
    if len(words) > _MOST_VALUES:
        raise UsageError(f"{key}: {len(words):,} values: at most {_MOST_VALUES:,}")
    if takes_many(name):
        return (tuple(words),)
    if words == [ALL]:
        return _all(key, name)
    check_no_range(key, words)
    found = [_value(key, name, word) for word in words]
    if name in SINGLE and name != "system" and len(found) > 1:
        raise UsageError(f"{key}: a search has one, not {len(found)}: {', '.join(words)}")
    return tuple(dict.fromkeys(found))


def _all(key: str, name: str) -> tuple[Value, ...]:
    """Every value, of a flag that has an end of them."""
    if name in SINGLE:
        raise UsageError(f"{key}={ALL}: a search has one: name it")
    if name not in _FREE and not words_of(name):
        free = ", ".join(sorted(one.replace("_", "-") for one in _FREE))
        raise UsageError(
            f"{key}={ALL}: there is no list of all its values: name those to try; all are known of {free}, of flags "
            "with a choice of words, and of switches"
        )
    return (ALL,)


def check_no_range(key: str, words: Sequence[str]) -> None:
    """UsageError for a range where only values are: of a plan all legal ones are tried, and one is set."""
    from ...explore.ranges import is_range

    if any(map(is_range, words)):
        raise UsageError(
            f"{key}: '{','.join(words)}' is a range, and only numbers of the system have ranges, by --vary: write a "
            "value or a list; of a plan every legal value is tried by default"
        )


def _value(key: str, name: str, word: str) -> Value:
    if name == "etp":
        return _etp(word)
    if name in _LISTS:
        return None if word == "none" else word.replace("+", ",")
    try:
        return as_value(_NAMED[name.replace("_", "-")].read(word))
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None


def as_value(value: object) -> Value:
    """Return the value of a word as a value of a plan."""
    if value is None or isinstance(value, (int, float, str, tuple)):
        return value
    raise TypeError(f"no value of a word: {value!r}")


def _etp(word: str) -> Value:
    if word == "tp":
        return "tp"
    if not re.fullmatch(r"[0-9]+", word) or int(word) < 1:
        raise UsageError(f"etp: '{word}' is not allowed: 1 for whole experts, or tp for experts split like the rest")
    return int(word)


def numbers_of(path: str, text: str | Sequence[object]) -> tuple[str, ...]:
    """Return values of a number of the system: a list, or `first:last:count` with both ends, evenly spaced.

    A range, `first..last` or `first..last:log`, is one text, for an optimiser to choose from. The last unit holds for
    all that have none. UsageError says what is wrong.

    >>> numbers_of("chip.memory.hbm.bandwidth", "2TB/s:10TB/s:3")
    ('2TB/s', '6TB/s', '10TB/s')
    >>> numbers_of("network.nvlink.topology", "switch,torus")
    ('switch', 'torus')
    """
    from ...explore.ranges import is_range, range_of

    if not isinstance(text, str) or (":" not in text and not is_range(text)):
        words = text.split(",") if isinstance(text, str) else map(str, text)
        if found := tuple(dict.fromkeys(word.strip() for word in words if word.strip())):
            return found
        raise UsageError(f"{path}: no value is given; write a list, or first:last:count, as in 2TB/s:10TB/s:9")
    if is_range(text):
        range_of(path, text)
        return (text.strip(),)
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not re.fullmatch(r"[0-9]{1,18}", parts[2]) or not 2 <= int(parts[2]) <= MOST_SYSTEMS:
        raise UsageError(
            f"{path}={text}: write first:last:count, as in 2TB/s:10TB/s:9, with a count of 2 to {MOST_SYSTEMS:,}, or a "
            "list with commas"
        )
    (last, unit), first = split_quantity(parts[1]), parse_quantity(parts[0])
    whole = parse_quantity(f"1 {unit}".strip())
    start = first.value_si if not split_quantity(parts[0])[1] else first.value_si / whole.value_si
    if split_quantity(parts[0])[1] and first.dimension != whole.dimension:
        raise UsageError(f"{path}={text}: both ends need one unit, of {units_of(whole.dimension)}")
    return tuple(f"{step:.12g}{unit}" for step in np.linspace(start, last, int(parts[2])).tolist())
