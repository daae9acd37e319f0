"""Mixture of experts: compute of a rank's experts, grouped products, exchanges of tokens, whole layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from ...backends.kernels.exchange import ExchangeConstants, ExchangeSizes
from ...backends.kernels.experts import ExpertsConstants, ExpertSizes
from ...backends.kernels.grouped import GroupedConstants, GroupedSizes
from ...backends.machine.system import System
from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..rows.cases import Array, Case
from ..rows.rows import NotJudged, Row
from .moe_exchange import exchange_case, exchange_seconds
from .moe_experts import experts_case, experts_seconds, grouped_case, grouped_seconds
from .moe_layer import layer_case, layer_seconds
from .moe_sizes import LayerSizes, MoeSizes

C = TypeVar("C")
T = TypeVar("T")

_READERS: Mapping[str, Callable[[Row], Case[MoeSizes]]] = MappingProxyType(
    {
        "moe_expert_compute": experts_case,
        "grouped_gemm": grouped_case,
        "ep_dispatch_latency": exchange_case,
        "ep_combine_latency": exchange_case,
        "ep_dispatch_bandwidth": exchange_case,
        "ep_combine_bandwidth": exchange_case,
        "moe_layer_forward": layer_case,
        "moe_layer_backward": layer_case,
    }
)
# What the rows of a class cannot tell: nothing but DeepEP between nodes goes over the network.
_FIXED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {("exchange", "dispatch_two_sided"): ("nic",), ("exchange", "combine_two_sided"): ("nic",)}
)


@dataclass(frozen=True, slots=True)
class MoeJudge:
    """Judges what mixture of experts adds to a model."""

    @property
    def name(self) -> str:
        """What people call the table."""
        return "moe"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tell this kind of table from others."""
        return (
            "id", "dataset", "quantity", "accelerator", "kernel", "dtype", "tokens_per_gpu", "hidden", "inter_size",
            "n_experts", "topk", "distribution", "time_us",
        )  # fmt: skip

    def case(self, row: Row) -> Case[MoeSizes]:
        """Read a row; NotJudged for a quantity that has no model, or sizes that are not given."""
        quantity = row.text("quantity")
        if quantity not in _READERS:
            raise NotJudged(f"no model predicts '{quantity}'")
        return _READERS[quantity](row)

    def seconds(self, cases: Sequence[Case[MoeSizes]], system: System, constants: object) -> Array:
        """Predict cases of one class and kind; whole layers take the exchanges' constants from the system."""
        kind, sizes = cases[0].kind, [c.sizes for c in cases]
        if isinstance(cases[0].sizes, ExchangeSizes):
            return exchange_seconds(_all(sizes, ExchangeSizes), system, _as(constants, ExchangeConstants))
        if isinstance(cases[0].sizes, GroupedSizes):
            return grouped_seconds(_all(sizes, GroupedSizes), system, _as(constants, GroupedConstants))
        if isinstance(cases[0].sizes, LayerSizes):
            return layer_seconds(_all(sizes, LayerSizes), kind, system, _as(constants, ExpertsConstants))
        return experts_seconds(_all(sizes, ExpertSizes), kind, system, _as(constants, ExpertsConstants))

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name the constants that rows of a kind cannot tell."""
        return _FIXED.get((cls, kind), ())


def _all(sizes: Sequence[MoeSizes], kind: type[T]) -> list[T]:
    found: list[T] = [s for s in sizes if isinstance(s, kind)]
    if len(found) != len(sizes):
        raise InternalError(f"cases of one kind must all be {kind.__name__}")
    return found


def _as(constants: object, kind: type[C]) -> C:
    if not isinstance(constants, kind):
        raise InternalError(f"needs {kind.__name__}, not {type(constants).__name__}")
    return constants
