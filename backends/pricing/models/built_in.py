"""The models that come with the product, in the order in which they are asked."""

from __future__ import annotations

from ...kernels.constants import KernelConstants
from ..host import HostSide
from ..roofline import Backend, Roofline
from .attention import AttentionModel
from .experts import ExpertsModel
from .gemm import GemmModel
from .rowwise import RowwiseModel


def built_in(kernels: KernelConstants) -> tuple[Backend, ...]:
    """Return the models whose constants there are; what none of them prices is left to the roofline."""
    models: tuple[tuple[object, Backend], ...] = (
        (kernels.gemm, GemmModel()),
        (kernels.attention, AttentionModel()),
        (kernels.experts and kernels.grouped, ExpertsModel()),
        (kernels.rowwise, RowwiseModel()),
    )
    return (HostSide(), *(model for constants, model in models if constants), Roofline())
