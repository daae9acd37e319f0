"""The batch and length that a graph was made for, where it was not left open."""

from __future__ import annotations

from .errors import UsageError
from .graph import Graph, Role, Workload
from .plan import Plan


def fixed_sizes(graph: Graph) -> tuple[int | None, int | None]:
    """Return the fixed sequences and the fixed tokens of each, of the first input of whole numbers; None where open."""
    found = (
        v.type.dims
        for region in graph.regions
        for v in region.of_role(Role.INPUT)
        if v.type.rank > 1 and not v.type.dtype.is_floating
    )
    batch, length = next(found, (None, None))[:2]
    one_token = graph.workload is Workload.DECODE
    return batch if isinstance(batch, int) else None, length if isinstance(length, int) and not one_token else None


def check_sizes(graph: Graph, plan: Plan) -> None:
    """Refuse a plan for other sizes than a graph is of: its work would be that of its own sizes."""
    _check_bounds(graph, plan)
    batch, length = fixed_sizes(graph)
    wrong = [
        f"{flag} {has}"
        for flag, has, asked in (("--mbs", batch, plan.micro_batch), ("--seq", length, plan.seq_len))
        if has is not None and has != asked
    ]
    if wrong:
        raise UsageError(
            f"'{graph.name}' has fixed sizes: give {' '.join(wrong)}, or make it with open ones (dynamic_shapes of "
            "torch.export, mark_dynamic of torch.compile, dynamic_axes of ONNX) or with others (--fixed seq=LENGTH of "
            "a factory, fixed={'seq': LENGTH} of slipstick.trace)"
        )


def _check_bounds(graph: Graph, plan: Plan) -> None:
    """Refuse a plan for lengths at which the module does something else than what was recorded."""
    decode = graph.workload is Workload.DECODE
    asked = {"batch": plan.micro_batch, "kv": plan.kv_len} | ({} if decode else {"seq": plan.seq_len})
    for bound in graph.bounds:
        size = asked.get(bound.name, bound.low)
        # A batch of one is recorded as one of several: torch asks whether a size is one for layouts alone.
        if bound.holds(size) or (bound.name == "batch" and size < 2):
            continue
        flag, place = "--mbs" if bound.name == "batch" else "--seq", f" ({bound.where})" if bound.where else ""
        raise UsageError(
            f"'{graph.name}' is recorded for {bound.name} = {bound.legal}{place}, not for {size}: give {flag} "
            f"{bound.legal}, or where the code allows it record it for that size (--fixed {bound.name}={size} of a "
            f"factory, fixed={{'{bound.name}': {size}}} of slipstick.trace)"
        )


__all__ = ["check_sizes", "fixed_sizes"]
