"""`python -m benchmarks.mutants.maps`: small faults in index maps, and in what picks an entry of one.

A fault is put into a fork of this process. It is caught where a truth table of the op on simulated ranks differs,
lowering is refused, or a golden graph does not hold its proof or is another than before. What changes none of these is
listed: graphs, and so their costs, are equal.
"""

from __future__ import annotations

import argparse
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path

import torch

from slipstick.ir import ops
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph
from slipstick.ir.ops import OPS, OpCall, OpDef
from slipstick.ir.ops.base import ShardChoice
from slipstick.ir.ops.index_map import Factors, IndexMap, Tensor, name_of
from slipstick.ir.plan import Family
from slipstick.ir.text.files import load_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.families import pipeline_for
from slipstick.passes.layouts import check
from slipstick.verify.proof.certificate import FUSE, SHARD, certify
from tests.oracles.truth import table
from tests.oracles.truth.cases import CASES

ROOT = Path(__file__).resolve().parents[2]
Edit = Callable[[IndexMap], IndexMap]
_ORDERS = ("first", "widest", "last", "as it lies")
_SUMS = ("always", "backward", "never")
_FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "tiny-llama.train": (Family(sp=True), Family(cp="ring"), Family(cp="ulysses"), Family(tp_plan="dtensor", zero=3)),
    "tiny-mixtral.train": (Family(ep=True, sp=True), Family(ep=True, etp=False), Family()),
    "tiny-gpt2.train": (Family(), Family(sp=True)),
    "tiny-mamba2.train": (Family(), Family(cp="ring")),
}


@dataclass(frozen=True)
class Fault:
    """A fault of one op: what it is, and the definition with it."""

    op: str
    what: str
    wrong: OpDef


def faults_of(op: OpDef) -> Iterator[Fault]:
    """Yield all faults of an op's index map, as its truth-table cases have it, and of its choice."""
    rule = op.index_map
    if rule is None:
        return
    maps = dict.fromkeys(rule(c.call, axis) for c in CASES if c.op == op.name for axis in c.axes)
    edits = dict(pair for index_map in maps for pair in _edits(index_map))
    for what, edit in edits.items():
        yield Fault(op.name, what, replace(op, index_map=partial(_edited, rule, edit)))
    for what, choice in _choices(op.shard):
        yield Fault(op.name, what, replace(op, shard=choice))


def _edited(rule: Callable[[OpCall, str], IndexMap], edit: Edit, call: OpCall, axis: str) -> IndexMap:
    return edit(rule(call, axis))


def _edits(m: IndexMap) -> Iterator[tuple[str, Edit]]:
    for t, tensor in enumerate(m.tensors):
        cut = [d for d, dim in enumerate(tensor) if dim]
        for d in cut:
            yield f"tensor {t}: {_word(tensor[d])} of dim {d} left out", partial(_with_dim, t, d, ())
            if tensor[d][-1][-1] in "*@!":
                bare = (*tensor[d][:-1], name_of(tensor[d][-1]))
                yield f"tensor {t}: {_word(tensor[d])} without its mark", partial(_with_dim, t, d, bare)
            else:
                whole = (*tensor[d][:-1], f"{tensor[d][-1]}!")
                yield f"tensor {t}: {_word(tensor[d])} must be whole", partial(_with_dim, t, d, whole)
        for a, b in combinations(range(len(tensor)), 2):
            if tensor[a] != tensor[b]:
                yield f"tensor {t}: dims {a} and {b} swapped", partial(_swapped, t, a, b)
    for name in ("sums", "same", "added", "linear", "untouched", "also"):
        for k, item in enumerate(getattr(m, name)):
            yield f"{name}: {item} left out", partial(_without, name, k)
    groups = {(i,) for i in range(len(m.inputs))} - set(m.linear)
    yield from ((f"linear in {group}", partial(_with_item, "linear", group)) for group in sorted(groups))
    for f in m.factors:
        for o, made in enumerate(m.outputs):
            if not any(name_of(x) == f for dim in made for x in dim) and (f, o) not in (*m.sums, *m.same):
                yield f"output {o} is said to be a sum over {f}", partial(_with_item, "sums", (f, o))
    for pair in m.sums:
        yield f"{pair[0]} makes no difference to output {pair[1]}", partial(_not_summed, pair)
    if m.only:
        yield "any factor may be cut", lambda given: replace(given, only="")
    yield "samples exact or not", lambda given: replace(given, exact=not given.exact)


def _word(dim: Factors) -> str:
    return f"({' '.join(dim)})" if len(dim) > 1 else "".join(dim)


def _with_tensor(m: IndexMap, t: int, edit: Callable[[Tensor], Tensor]) -> IndexMap:
    tensors = [edit(x) if i == t else x for i, x in enumerate(m.tensors)]
    return replace(m, inputs=tuple(tensors[: len(m.inputs)]), outputs=tuple(tensors[len(m.inputs) :]))


def _with_dim(t: int, d: int, dim: Factors, m: IndexMap) -> IndexMap:
    return _with_tensor(m, t, lambda x: (*x[:d], dim, *x[d + 1 :]) if d < len(x) else x)


def _swapped(t: int, a: int, b: int, m: IndexMap) -> IndexMap:
    return _with_tensor(m, t, lambda x: tuple(x[{a: b, b: a}.get(i, i)] for i in range(len(x))) if b < len(x) else x)


def _without(name: str, k: int, m: IndexMap) -> IndexMap:
    given = getattr(m, name)
    # Groups are named by their place: one that is left out has nothing in it that could be partial.
    rest = (*given[:k], *(((),) if name == "linear" and k < len(given) else ()), *given[k + 1 :])
    return replace(m, **{name: rest})  # type: ignore[arg-type]


def _with_item(name: str, item: object, m: IndexMap) -> IndexMap:
    return replace(m, **{name: (*getattr(m, name), item)})  # type: ignore[arg-type]


def _not_summed(pair: tuple[str, int], m: IndexMap) -> IndexMap:
    return replace(m, sums=tuple(p for p in m.sums if p != pair), same=(*m.same, pair))


def _choices(given: ShardChoice) -> Iterator[tuple[str, ShardChoice]]:
    """Yield a choice with one field changed."""
    others: Mapping[str, Sequence[object]] = {
        "order": _ORDERS, "sums": _SUMS, "packs": ("first", "any"), "joins": (True, False), "gathers": (True, False),
        "names": (None, given.names[::-1] if given.names else (0,)), "follows": (None,), "deaf": ((),),
        "instead": (None,),
    }  # fmt: skip
    for field in fields(given):
        for value in others[field.name]:
            if value != getattr(given, field.name):
                changed = replace(given, **{field.name: value})  # type: ignore[arg-type]
                yield f"shard {field.name}={value}", changed


def lowerings() -> Iterator[tuple[str, Graph, Family]]:
    """Yield golden graphs and families by which each is lowered."""
    for path in sorted((ROOT / "tests" / "golden").glob("*.graph")):
        graph = load_graph(path)
        for family in _FAMILIES.get(path.stem, (Family(),)):
            yield f"{path.stem} {family}", graph, replace(family, workload=graph.workload)


def lowered(source: Graph, family: Family) -> tuple[str, bool]:
    """Return the text of a lowered graph and whether it is proven; the error where it is refused."""
    pipeline, seen = pipeline_for(family), dict[str, Graph]()
    try:
        graph, _ = pipeline.run(source, None, lambda _, step, made: seen.update({step.name: made}))
    except SlipstickError as error:
        return f"refused: {error}"[:200], True
    names = [p.name for p in pipeline.passes]
    before = seen[names[names.index(SHARD) - 1]] if names.index(SHARD) else source
    unfused = seen[names[names.index(FUSE) - 1]] if FUSE in names else None
    return print_graph(graph), certify(before, seen[SHARD], graph, names, unfused).holds


def tables(op: str) -> list[str]:
    """Return the truth tables of an op, as text."""
    return [f"{c.name} {axis} {_sorted(table.row(c, axis))}" for c in CASES if c.op == op for axis in c.axes]


def _sorted(found: object) -> list[list[str]]:
    return [sorted(getattr(found, name)) for name in ("right", "wrong", "missing", "false_laws", "unlawful")]


class Judge:
    """Graphs and truth tables without a fault, beside which those with one are held."""

    def __init__(self) -> None:
        """Lower all graphs, and make all truth tables."""
        self.graphs = list(lowerings())
        self.texts = {name: lowered(graph, family) for name, graph, family in self.graphs}
        self.tables = {op: tables(op) for op in OPS if OPS[op].index_map is not None}

    def verdict(self, fault: Fault) -> str:
        """Return by what a fault is caught; empty where nothing differs."""
        OPS[fault.op] = fault.wrong
        for cached in (ops._index_map, check._complaints):
            cached.cache_clear()
        try:
            if tables(fault.op) != self.tables[fault.op]:
                return "truth table"
        except Exception:
            return "truth table"
        changed = ""
        for name, graph, family in self.graphs:
            try:
                text, proven = lowered(graph, family)
            except Exception:
                return "lowering fails"
            before, sound = self.texts[name]
            if text.startswith("refused") and not before.startswith("refused"):
                return "layout laws"
            if sound and not proven:
                return "proof"
            changed = changed or ("golden graph" if text != before else "")
        return changed


def judged(judge: Judge, fault: Fault) -> str:
    """Judge a fault in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, judge.verdict(fault).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read().decode()
    os.waitpid(child, 0)
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Draw faults, judge them, print the table and those that change nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants.maps", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="faults that are drawn (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default 0)")
    parser.add_argument("--verbose", action="store_true", help="print each fault as it is judged")
    given = parser.parse_args(words)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a fork has no other threads
    table.holds = cache(table.holds)
    every = [fault for op in list(OPS.values()) for fault in faults_of(op)]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    judge, found = Judge(), Counter[str]()
    equal: list[Fault] = []
    for fault in drawn:
        verdict = judged(judge, fault)
        found[verdict or "graphs and tables equal"] += 1
        if given.verbose:
            print(f"{verdict or 'equal':14} {fault.op}: {fault.what}", flush=True)
        equal += [] if verdict else [fault]
    print(f"{len(drawn)} of {len(every)} faults, {len(judge.graphs)} lowered graphs")
    for verdict, count in found.most_common():
        print(f"{count:5} {verdict}")
    for fault in sorted(equal, key=lambda f: (f.op, f.what)):
        print(f"equal  {fault.op}: {fault.what}")


if __name__ == "__main__":
    main()
