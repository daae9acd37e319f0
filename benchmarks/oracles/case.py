"""One model type against every oracle: ours, theirs, and what differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

from torch import nn

from slipstick.frontend import GraphCache, config_of, load_config
from slipstick.frontend.fold.balance import count_parameters
from slipstick.frontend.record.failures import first_line
from slipstick.ir.graph import Graph, Role
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.sharding.shard import shard_by

from ..small_configs import small_config
from .ran import Ran, differences, ours
from .splits import as_transformers_does, by_module, in_units, plan_of, split_linears
from .theirs import Split, build, ranks, run

ORACLES = ("module by module", "transformers' plan", "FSDP2", "HSDP")
RANKS, SHARDS = 8, 4
_DEGREES = (4, 2)

T = TypeVar("T")
Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """How one type and one oracle compare: `same`, `differs`, or which side cannot run it; and what differs or why.

    `unread` says that the model has parameters that take no part in a training step, and are not in our graph.
    """

    model_type: str
    oracle: str
    outcome: str
    what: str = ""
    messages: int = 0
    products: int = 0
    unread: bool = False

    def to_json(self) -> str:
        """Return the line of a results file."""
        return json.dumps(asdict(self))


def measure(model_type: str) -> list[Found]:
    """Compare a type, with graphs that earlier runs recorded."""
    return compare(model_type, GraphCache.default())


def failed(model_type: str, why_not: str) -> list[Found]:
    """Return what is said of a type that took too long, or whose process died."""
    return [Found(model_type, oracle, "failed", why_not) for oracle in ORACLES]


def compare(model_type: str, cache: GraphCache | None = None) -> list[Found]:
    """Compare a small config of a type with untied tables."""
    fields = {**small_config(model_type), "tie_word_embeddings": False}
    try:
        graph = load_config(config_of(model_type, {"model_type": model_type, **fields}), cache=cache)
    except Exception as error:
        return [Found(model_type, oracle, "not traced", first_line(error)) for oracle in ORACLES]
    runs = (_by_module, _transformers, _fsdp, _hsdp)
    both = (partial(one, model_type, fields, graph) for one in runs)
    unread = count_parameters(_bare(model_type, fields)) > float(graph.num_parameters.evaluate({}))
    return [replace(_one(model_type, name, of), unread=unread) for name, of in zip(ORACLES, both, strict=True)]


def _bare(model_type: str, fields: Fields) -> nn.Module:
    """The module without memory."""
    import torch

    with torch.device("meta"):
        return build(model_type, fields)


class _CannotError(Exception):
    """One side cannot run this; the first argument says which."""


def _one(model_type: str, oracle: str, both: Callable[[], tuple[Ran, Ran]]) -> Found:
    try:
        mine, found = both()
    except _CannotError as error:
        return Found(model_type, oracle, str(error.args[0]), str(error.args[1]))
    other = differences(mine, found)
    what = " | ".join(f"{name}: {text}" for name, text in other.items())
    num = sum(found.forward.values()) + sum(found.backward.values())
    return Found(model_type, oracle, "differs" if other else "same", what, num, sum(found.products.values()))


def _ours(make: Callable[[], T]) -> T:
    try:
        return make()
    except Exception as error:
        raise _CannotError("ours cannot", first_line(error)) from error


def _theirs(make: Callable[[], Ran]) -> Ran:
    try:
        return make()
    except Exception as error:
        raise _CannotError("theirs cannot", first_line(error)) from error


def _by_module(model_type: str, fields: Fields, graph: Graph) -> tuple[Ran, Ran]:
    """The widest degree, and the fewest changes to the module, that PyTorch runs."""
    linears = split_linears(_bare(model_type, fields))
    if not linears:
        raise _CannotError("nothing to split", "no linear layer in repeated layers has a name that a plan knows")
    tries = ((tp, by_module(linears, tp, local)) for tp in _DEGREES for local in (False, True))
    tp, found = _first_that_runs(model_type, fields, tries)
    mine = _ours(lambda: ours(shard_by(graph, plan_of(linears)), {"tp": tp, "dp": 1}, ("tp",), once=False))
    return mine, found


def _transformers(model_type: str, fields: Fields, graph: Graph) -> tuple[Ran, Ran]:
    if not any(hint.axis == "tp" for hint in graph.hints):
        raise _CannotError("nothing to split", "the model brings no plan")
    tp, found = _first_that_runs(model_type, fields, ((tp, as_transformers_does) for tp in _DEGREES))
    passes = parse_pipeline('shard{tp_plan="hf"}')
    return _ours(lambda: ours(passes.run(graph)[0], {"tp": tp, "dp": 1}, ("tp",))), found


def _first_that_runs(model_type: str, fields: Fields, tries: Iterable[tuple[int, Split]]) -> tuple[int, Ran]:
    """Return the first degree and split that PyTorch runs, and what it runs; else say why it does not run the first."""
    reasons: list[_CannotError] = []
    for tp, split in tries:
        try:
            with ranks((tp,), ("tp",)) as mesh:
                return tp, _theirs(partial(run, model_type, fields, mesh, split))
        except _CannotError as error:
            reasons.append(error)
    raise reasons[0]


def _fsdp(model_type: str, fields: Fields, graph: Graph) -> tuple[Ran, Ran]:
    return _sharded(model_type, fields, graph, "zero=3", {"dp": RANKS, "fsdp": 1})


def _hsdp(model_type: str, fields: Fields, graph: Graph) -> tuple[Ran, Ran]:
    return _sharded(model_type, fields, graph, "zero=3, hsdp=true", {"dp": RANKS // SHARDS, "fsdp": SHARDS})


def _sharded(model_type: str, fields: Fields, graph: Graph, options: str, degrees: dict[str, float]) -> tuple[Ran, Ran]:
    hybrid = degrees["fsdp"] > 1
    shape, names = ((RANKS // SHARDS, SHARDS), ("dp", "fsdp")) if hybrid else ((RANKS,), ("dp",))
    first = [v.name for v in graph.regions[0].of_role(Role.PARAM)]
    with ranks(shape, names) as mesh:
        found = _theirs(lambda: run(model_type, fields, mesh, in_units(first)))
    passes = parse_pipeline(f'accumulate{{dtype="bf16"}},shard{{tp_plan="dtensor-naive", {options}}},bucket,optimizer')
    lowered, at = _ours(lambda: passes.run(graph)[0]), {"tp": 1.0, **degrees}
    with suppress(ValueError):  # a parameter that is too small to be cut evenly
        flat = ours(lowered, at, ("dp", "fsdp"))
        if not differences(flat, found):
            return flat, found
    # FSDP2 fills up the rows of each parameter to a multiple of the ranks; ours cuts a flat buffer.
    return _ours(lambda: ours(lowered, at, ("dp", "fsdp"), SHARDS if hybrid else RANKS)), found
