"""A lowered prefill or decode step on simulated ranks against the module itself behind a prompt."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor

from ...frontend.huggingface.operators.cache import Past
from ...frontend.huggingface.operators.linear import remembers
from ...frontend.loss import returned_tensor
from ...frontend.workloads import ModelCache
from ...ir.graph import Graph, Node, Region, Role, Value, Workload
from ...ir.ops import Trait, has
from ...ir.ops.fused.scan import ScanAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import ReduceAttrs
from ...ir.records import dataclass
from .call import Mesh, NotComputedError
from .compare import ComparedModule, Difference, Verdict, compare, in_double, judged, relative
from .layout import LocalSizes
from .run import Instance, Runner

_CACHES = ("past_key_values", "cache_params")
# Mamba's state is [batch, channels, n] in transformers, Mamba-2's [batch, heads, p, n].
_TURNED: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"selective": lambda t: t.unsqueeze(-1), "ssd": lambda t: t.transpose(2, 3)}
)


@dataclass(frozen=True)
class ServingStep:
    """A step of the module: what it is given, by the names of a graph's inputs, its logits, and its cache behind it."""

    workload: Workload
    length: int
    inputs: Mapping[str, Tensor]
    logits: Tensor
    kept: Mapping[str, Tensor]


def step_of(subject: ComparedModule, workload: Workload, batch: int, length: int) -> ServingStep:
    """Run a prompt of `length` tokens, and for decode one token more; NotComputedError where there is no cache.

    Layers with a window keep the whole prompt here, behind masks of their own: a graph takes what its window leaves.
    """
    module = subject.module
    if getattr(module.config, "is_encoder_decoder", False) or remembers(module):
        raise NotComputedError("a serving step of a model that keeps no cache of transformers' own kind")
    made = torch.Generator().manual_seed(7)
    ids = torch.randint(3, subject.vocabulary, (batch, length + 1), generator=made)
    with in_double(), torch.no_grad():
        cache = _empty_cache(subject)
        logits = _called(subject, ids[:, :length], cache, 0)
        if workload is Workload.PREFILL:
            return ServingStep(workload, length, {"input_ids": ids[:, :length]}, logits, _tensors(subject, cache))
        before = _tensors(subject, cache)
        logits = _called(subject, ids[:, length:], cache, length)
    given = {"input_ids": ids[:, length:], "position_ids": torch.full((batch, 1), length), **before}
    return ServingStep(workload, length, given, logits, _tensors(subject, cache))


def _empty_cache(subject: ComparedModule) -> ModelCache:
    from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=subject.module.config)  # type: ignore[arg-type]
    make: Callable[[], CacheLayerMixin] = DynamicLayer
    layers = [make() if type(x) is DynamicSlidingWindowLayer else x for x in cache.layers]
    cache.layers = layers
    return cast("ModelCache", cache)


def _called(subject: ComparedModule, ids: Tensor, cache: ModelCache, start: int) -> Tensor:
    """Logits of some tokens; the cache grows by them."""
    known = inspect.signature(type(subject.module).forward).parameters
    name = next((n for n in _CACHES if n in known), "")
    if not name:
        raise NotComputedError("a serving step of a model that takes no cache")
    positions = torch.arange(start, start + ids.shape[1]).expand(ids.shape)
    options = {"position_ids": positions} if "position_ids" in known else {}
    out = subject.module(input_ids=ids, use_cache=True, **{name: cache}, **options)
    return returned_tensor(out, "logits")


def _tensors(subject: ComparedModule, cache: ModelCache) -> dict[str, Tensor]:
    """Return copies of what layers hold, states as the scans of the graph hold them: [batch, heads, n, p]."""
    kinds = {n.attrs.kind for r in subject.graph.regions for n in r.nodes if isinstance(n.attrs, ScanAttrs)}
    if len(kinds) > 1 and kinds & _TURNED.keys():
        raise NotComputedError(f"a cache with states of several kinds: {', '.join(sorted(kinds))}")
    turned = _TURNED.get(next(iter(kinds), ""))
    return {
        name: turned(t) if turned is not None and name.rpartition(".")[2].startswith("state") else t
        for name, t in _named(cache)
    }


def _named(cache: ModelCache) -> Iterator[tuple[str, Tensor]]:
    """Yield copies of what layers hold, by the names of a graph's caches.

    What one layer has of keys and values stands under `latents` side by side as well: latent attention caches that.
    """
    for k, layer in enumerate(cache.layers):
        conv, states = (
            {i: t for i, t in getattr(layer, name, {}).items() if t is not None}
            for name in ("conv_states", "recurrent_states")
        )
        keys, values, index = (_filled(getattr(layer, name, None)) for name in ("keys", "values", "index_keys"))
        past = Past(keys, values, conv, states, index)
        yield from ((name, t.detach().clone()) for name, t in past.named(k))
        if past.keys is not None and past.values is not None and past.keys.shape[:3] == past.values.shape[:3]:
            yield f"cache.{k}.latents", torch.cat((past.keys, past.values), dim=3)


def _filled(given: Tensor | None) -> Tensor | None:
    return given if isinstance(given, Tensor) and given.numel() else None


_NORMED, _TABLE = "_normed", ".table_"
_LAYER = re.compile(r"\.([0-9]+)(\.|$)")
_LENGTH = 2  # dim of tokens in a cache of keys [batch, heads, tokens, head dim]
_NAMES = {"kv_append": ("keys", "values", "index_keys"), "keep_state": ("conv_state", "state")}


def compare_step(subject: ComparedModule, lowered: Graph, degrees: Mapping[str, int], step: ServingStep) -> Verdict:
    """Run a lowered serving step with these degrees (those not named are 1) and compare it with the module's."""

    def run(layout: LocalSizes) -> Verdict:
        alone = {**layout.sizes, **dict.fromkeys(layout.mesh.degrees, 1)}
        tables = _tables(subject, step, alone) if _has_tables(lowered) else {}
        runner = StepRunner(layout, subject, {**step.inputs, **tables}, degrees.get("pp", 1))
        found = runner.run()
        theirs = {name.rpartition(".")[0] for name in step.kept}
        if unknown := sorted(name for name in runner.kept if name.rpartition(".")[0] not in theirs):
            return Verdict(reason=f"the module keeps '{unknown[0]}' in no cache of transformers")
        return Verdict((*_made(step, found.results), *_kept(step, runner.kept)), num_nodes=found.num_nodes)

    length = "kv" if step.workload is Workload.DECODE else "seq"
    return judged(lowered, degrees, {"batch": step.inputs["input_ids"].shape[0], length: step.length}, run)


def compare_phase(
    subject: ComparedModule, lowered: Graph, degrees: Mapping[str, int], batch: int, length: int
) -> Verdict:
    """Compare a training step, a prefill or a decode step of a model of transformers; errors as `step_of`."""
    if lowered.workload is Workload.TRAIN:
        return compare(subject, lowered, degrees, batch, length)
    return compare_step(subject, lowered, degrees, step_of(subject, lowered.workload, batch, length))


def _made(step: ServingStep, results: Mapping[str, Tensor]) -> Iterator[Difference]:
    """Logits, and the tokens that are drawn of them without noise."""
    ours = results.get("logits", results["result0"])
    theirs = step.logits[:, -ours.shape[1] :]
    yield Difference("logits", relative(ours, theirs))
    if "logits" in results:
        same = torch.equal(results["result0"].reshape(-1).long(), theirs.argmax(-1).reshape(-1))
        yield Difference("tokens", 0.0 if same else float("inf"))


def _kept(step: ServingStep, ours: Mapping[str, Tensor]) -> Iterator[Difference]:
    """What is kept for the next step; of a cache with a window, the tokens that the window leaves."""
    latent = {name.rpartition(".")[0] for name in ours if name.endswith(".latents")}
    for name, theirs in step.kept.items():
        layer, _, what = name.rpartition(".")
        if (what == "latents") != (layer in latent):
            continue
        if name not in ours:
            yield Difference(f"{name} (not kept)", float("inf"))
        else:
            yield Difference(name, relative(ours[name], _last(theirs, ours[name].shape)))
    yield from (Difference(f"{name} (not the module's)", float("inf")) for name in ours if name not in step.kept)


def _last(whole: Tensor, shape: Sequence[int]) -> Tensor:
    """The last tokens of a cache of keys or values, where there is room for fewer."""
    if whole.dim() == len(shape) == _LENGTH + 2 and shape[_LENGTH] < whole.shape[_LENGTH]:
        return whole[:, :, whole.shape[_LENGTH] - shape[_LENGTH] :]
    return whole


class StepRunner(Runner):
    """A run that also knows what serving passes make of parameters, tables and caches."""

    def __init__(
        self, layout: LocalSizes, subject: ComparedModule, inputs: Mapping[str, Tensor], num_stages: int = 1
    ) -> None:
        """Know the recorded graph beside the lowered one: which round is which layer, which norms passes moved."""
        super().__init__(layout, subject.state, inputs, num_stages)
        self.recorded = subject.graph
        self.kept: dict[str, Tensor] = {}
        self.order: list[Instance] = []

    def rounds(self, graph: Graph) -> list[Instance]:
        """Rounds of the recorded graph, whose names say which regions are layers."""
        self.order = [replace(e, region=graph.region(e.region.name)) for e in super().rounds(self.recorded)]
        return self.order

    def first_ports(self) -> Mapping[str, Tensor]:
        """Run the first region alone, and return what it hands on."""
        self.forward(self.rounds(self.layout.graph)[0])
        return {name: parts[0].tensor for name, (parts, _) in self.ports.held.items()}

    def whole(self, each: Instance, v: Value) -> Tensor | None:
        """Return a tensor of the module for a parameter, buffer or input."""
        if (moved := self._moved_norm(each, v)) is not None:
            return self.state.get(moved)
        _, table, port = v.name.partition(_TABLE)
        found = self.inputs.get(table + port) if table else super().whole(each, v)
        if found is not None and v.role is Role.CACHE:
            return _last(found, [self.layout.size(v, d) for d in range(v.type.rank)])
        return self._side_by_side(each, v) if found is None else found

    def node(self, each: Instance, node: Node) -> None:
        """Run a node; keep what it writes to a cache, and the logits of which tokens are drawn."""
        super().node(each, node)
        if has(node, Trait.WRITES_CACHE):
            made = self.rebuilt(each.region, node.key, each.held[node.key])
            self.kept[self._cache_name(each, node)] = made
        if isinstance(node.attrs, ReduceAttrs) and node.attrs.fn == "argmax" and _is_result(each.region, node):
            self.logits["logits"] = self.rebuilt(each.region, node.inputs[0], each.held[node.inputs[0]])

    def _cache_name(self, each: Instance, node: Node) -> str:
        """The name of the cache that a node writes to; a prompt's caches begin here, and are named as they come."""
        region = each.region
        owner = region.by_id.get(region.by_id[node.key].storage)
        if owner is not None and owner.role is Role.CACHE:
            return each.name(owner)
        said = _LAYER.search(node.scope)
        layer = int(said.group(1)) if said else each.layer
        taken = (f"cache.{layer}.{name}" for name in (*_NAMES[node.op], "state.1", "state.2"))
        return next((name for name in taken if name not in self.kept), f"cache.{layer}.more")

    def _moved_norm(self, each: Instance, v: Value) -> str | None:
        """The parameter of a norm that stands at the end of a region for the one that runs next: that one's own.

        A region that repeats has one norm there for all rounds; behind the last it is the head's.
        """
        region = each.region
        norm, index = _norm_of(region, v.id) if v.role is Role.PARAM else (None, 0)
        named = (p.name for p in region.outputs if norm and p.value == norm.key and p.name.endswith(_NORMED))
        port = next(named, "")
        if not port:
            return None
        place = next(k for k, other in enumerate(self.order) if other is each)
        for reader in self.order[place + 1 :]:
            if any(w.name == port for w in reader.region.of_role(Role.PORT)):
                recorded = self.recorded.region(reader.region.name)
                read = _first_norm(recorded, port.removesuffix(_NORMED)).inputs[index]
                while read in recorded.producer:
                    read = recorded.producer[read].inputs[0]
                return reader.name(recorded.by_id[read])
        return None

    def _side_by_side(self, each: Instance, v: Value) -> Tensor | None:
        """Weights that were joined under one name, put side by side along the columns of their product."""
        name = each.name(v)
        parts = [self.state.get(n) for n in _parts(name)]
        readers = [n for n in each.region.users.get(v.id, ()) if isinstance(n.attrs, MatmulAttrs)]
        if not readers or any(p is None for p in parts) or len(parts) < 2:
            return None
        attrs = readers[0].attrs
        assert isinstance(attrs, MatmulAttrs)
        _, right, out = attrs.letters
        return torch.cat([p for p in parts if p is not None], 0 if v.type.rank == 1 else right.index(out[-1]))


def _norm_of(region: Region, value: int) -> tuple[Node | None, int]:
    """Return the norm that reads a value as a weight, or what is made of that alone, and as which of its inputs."""
    for user in region.users.get(value, ()):
        if has(user, Trait.NORMALISES_ROWS) and value in user.inputs[1:]:
            return user, user.inputs.index(value)
        if user.inputs == (value,):
            return _norm_of(region, user.key)
    return None, 0


def _parts(name: str) -> list[str]:
    """Names of which `joined_name` made one: parts of a path stand side by side where paths differ.

    >>> _parts("layers.0.q_proj+k_proj.weight")
    ['layers.0.q_proj.weight', 'layers.0.k_proj.weight']
    """
    columns = [part.split("+") for part in name.split(".")]
    count = max(map(len, columns))
    if any(len(c) not in (1, count) for c in columns):
        return []
    return [".".join(c[k] if len(c) > 1 else c[0] for c in columns) for k in range(count)]


def _first_norm(region: Region, port: str) -> Node:
    value = next(v.id for v in region.of_role(Role.PORT) if v.name == port)
    return next(n for n in region.users[value] if has(n, Trait.NORMALISES_ROWS) and n.inputs[0] == value)


def _is_result(region: Region, node: Node) -> bool:
    return any(p.value == node.key and p.name.startswith("result") for p in region.outputs)


def _has_tables(graph: Graph) -> bool:
    return any(_TABLE in v.name for r in graph.regions for v in r.values)


def _tables(subject: ComparedModule, step: ServingStep, sizes: Mapping[str, int]) -> Mapping[str, Tensor]:
    """Sines and cosines of a step's positions, as the recorded graph makes them, by the names that tables have."""
    runner = StepRunner(LocalSizes(subject.graph, Mesh({}), sizes), subject, step.inputs)
    return {_TABLE + name: t for name, t in runner.first_ports().items()}
