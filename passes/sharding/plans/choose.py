"""A name of a tensor-parallel plan to the plan for one graph: ready-made, the model's own, a file's or found."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ....ir.errors import PlanError
from ....ir.graph import Graph, Role
from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.placement import TP
from .auto import SMALLEST_DEGREE, Lower, degree_of, find_plan, is_auto
from .plan_files import names_file, read_plan
from .plans import MADE_PLANS, TP_PLANS, Style, TpPlan, style_of, tp_plan

# Plans that are meant to split all of a model, and the part of its matrices that they must know by name.
WHOLE_MODEL, ENOUGH_NAMED = ("megatron", "dtensor"), 0.9

_TURNED = {
    Style.COLWISE: Style.ROWWISE,
    Style.ROWWISE: Style.COLWISE,
    Style.PACKED_ROWWISE: Style.PACKED_COLWISE,
    Style.PACKED_COLWISE: Style.PACKED_ROWWISE,
}


def plan_for(name: str, graph: Graph, lower: Lower) -> TpPlan:
    """Return the plan of that name for a graph that is not sharded yet.

    `lower` shards a graph by a plan; the search for one calls it again and again. UnknownNameError for a name or a
    style that is not known, PlanError when the model has no plan of its own or a pattern of a file matches none of its
    parameters.
    """
    if is_auto(name):
        return find_plan(graph, degree_of(name), lower)
    if name == "hf":
        return _own(graph)
    if names_file(name):
        return _checked(read_plan(name), graph)
    return _by_names(tp_plan(name), graph, lower)


def check_name(name: str) -> None:
    """Raise the error of a plan that no graph can have: of an unknown name, of a file that is none."""
    if is_auto(name):
        degree_of(name)
    elif names_file(name):
        read_plan(name)
    elif name not in MADE_PLANS:
        tp_plan(name)


def parameter_names(graph: Graph) -> list[str]:
    """The paths of all parameters, in order, each once."""
    return list(dict.fromkeys(v.name for r in graph.regions for v in r.of_role(Role.PARAM)))


def styles_in(plan: TpPlan, graph: Graph) -> dict[str, Style]:
    """What a plan does with each parameter of a graph."""
    return {name: plan.style(name) for name in parameter_names(graph)}


def _by_names(plan: TpPlan, graph: Graph, lower: Lower) -> TpPlan:
    """A ready-made plan where it knows the names of a model's layers; where it does not, the search's.

    A plan that leaves layers whole on purpose, as `dtensor-naive` does table and head, is taken as it is.
    """
    share = named_share(plan, graph)
    if share >= ENOUGH_NAMED or plan.name not in WHOLE_MODEL:
        return plan
    found = _searched(graph, lower)
    note = (
        f"tensor-parallel plan '{plan.name}' knows the names of layers with {share:.0%} of the bytes of all matrices: "
        f"the plan was found by search instead, legal at tp={SMALLEST_DEGREE} ('auto' searches at the degree asked for)"
    )
    return replace(found, note=f"{note}; {found.note}" if found.note else note)


@lru_cache(maxsize=16)
def _searched(graph: Graph, lower: Lower) -> TpPlan:
    """A search takes seconds, and a study shards one graph for many families."""
    return find_plan(graph, SMALLEST_DEGREE, lower)


def named_share(plan: TpPlan, graph: Graph) -> float:
    """Return the part of the bytes of a model's matrices whose names a plan knows; 1 without matrices."""
    sizes = [
        (name, float(kind.num_bytes.evaluate({})) * count)
        for name, kind, count in graph.distinct_parameters()
        if kind.rank > 1
    ]
    whole = sum(size for _, size in sizes)
    return sum(size for name, size in sizes if plan.names(name)) / whole if whole else 1.0


def _own(graph: Graph) -> TpPlan:
    """Patterns of transformers name layers that some sizes of the model do not have, so those are no error."""
    entries = tuple((h.path, style_of(h.style)) for h in graph.hints if h.axis == TP)
    plan = TpPlan("hf", entries, eager_grads=True, doc=MADE_PLANS["hf"])
    # transformers means the last dim but one by columns and the last by rows, however experts' matrices lie.
    turned = tuple((name, _TURNED[s]) for name in _transposed_experts(graph) if (s := plan.style(name)) in _TURNED)
    plan = replace(plan, entries=(*turned, *entries))
    if all(style is Style.REPLICATE for style in styles_in(plan, graph).values()):
        allowed = ", ".join(sorted([*TP_PLANS, "auto"]))
        raise PlanError(f"{graph.name} brings no tensor-parallel plan of its own; legal: {allowed}, or a file")
    return plan


def _transposed_experts(graph: Graph) -> list[str]:
    """Matrices of experts that lie with their inputs in front, [experts, in, out]."""
    nodes = ((r, n) for r in graph.regions for n in r.nodes)
    read = (r.by_id[i] for r, n in nodes if isinstance(n.attrs, ExpertsAttrs) and n.attrs.transposed for i in n.inputs)
    return list(dict.fromkeys(v.name for v in read if v.role is Role.PARAM and v.type.rank > 2))


def _checked(plan: TpPlan, graph: Graph) -> TpPlan:
    names = parameter_names(graph)
    lost = plan.unmatched(names)
    if not lost:
        return plan
    paths = sorted({path for n in names for path in (n, n.rpartition(".")[0]) if path})
    from difflib import get_close_matches

    near = ", ".join(get_close_matches(lost[0], paths, n=3, cutoff=0.4)) or ", ".join(paths[:3])
    raise PlanError(f"'{plan.name}': pattern '{lost[0]}' matches no parameter of {graph.name}; nearest: {near}")
