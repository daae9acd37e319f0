"""What a software stack decides of a plan: kernels, how much is run again, how gradients and stages are handled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from ...records import dataclass
from ...types import DType

# Modules of layers that run again which Megatron-Core has by the same names: its --recompute-modules.
MEGATRON_MODULES = ("core_attn", "layernorm", "mlp", "moe", "shared_experts", "mla_up_proj")


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a software stack decides of a plan where its words leave it open; a word that is said goes first.

    Attributes:
        kernels: what its kernels keep and write in place, as in a plan's family.
        scatter_p2p: whether tensor-parallel ranks send pieces to the next pipeline stage, which gathers them.
        early_stop: whether recomputation stops at the last tensor that is needed; else all of it is run again.
        reduce_dtype: in which type ZeRO 2 and 3 reduce gradients; `model` for that of weights and activations.
        reshard: when ZeRO 3 frees gathered parameters where there are pipeline stages; else behind each layer.
        pp_layout: how layers fall on pipeline stages.
    """

    kernels: Literal["plain", "eager", "merged", "torch", "compiled", "fused"] = "plain"
    scatter_p2p: bool = False
    early_stop: bool = True
    reduce_dtype: Literal["model", "fp32", "bf16", "fp16"] = "model"
    reshard: Literal["layer", "microbatch", "step"] = "layer"
    pp_layout: Literal["auto", "even", "balanced", "filled"] = "auto"

    def words(self, recompute: str, zero: int, staged: bool) -> Mapping[str, object]:
        """Return the words of a training plan that follow, by their fields; kernels are those of any phase.

        >>> Decisions(early_stop=False).words("full", zero=1, staged=False)["early_stop"]
        False
        """
        reduced = DType(self.reduce_dtype) if self.reduce_dtype != "model" and zero > 1 else None
        return {
            "scatter_p2p": self.scatter_p2p and staged,
            "early_stop": self.early_stop or recompute == "none",
            "reduce_dtype": reduced,
            "reshard": self.reshard if zero == 3 and staged else "layer",
            "pp_layout": self.pp_layout if staged else "auto",
        }


class Software(Protocol):
    """A software stack, as far as plans know it."""

    @property
    def decides(self) -> Decisions:
        """What it decides of a plan."""
        ...
