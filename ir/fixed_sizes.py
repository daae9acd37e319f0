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
    batch, length = fixed_sizes(graph)
    wrong = [
        f"{flag} {has}"
        for flag, has, asked in (("--mbs", batch, plan.micro_batch), ("--seq", length, plan.seq_len))
        if has is not None and has != asked
    ]
    if wrong:
        raise UsageError(
            f"'{graph.name}' has fixed sizes: give {' '.join(wrong)}, or make it with open ones (dynamic_shapes of "
            "torch.export, mark_dynamic of torch.compile, dynamic_axes of ONNX)"
        )


__all__ = ["check_sizes", "fixed_sizes"]
