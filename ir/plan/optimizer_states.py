"""Types in which an optimizer keeps master weights and moments: what there is, and what goes together."""

from __future__ import annotations

from ..errors import PlanError, UnknownNameError

FP32, INT8, NONE = "fp32", "int8", "none"
# Megatron-Core, `--use-precision-aware-optimizer`: master weights in fp32 or fp16, moments in fp32, bf16, fp16 or fp8
# (`megatron/training/arguments.py`). DeepSeek-V3 keeps both moments in bf16 (arXiv 2412.19437, section 3.3.2).
# bitsandbytes keeps both in int8 (arXiv 2110.02861). Without master weights: weights in 16 bits under plain AdamW.
MAIN = (FP32, "fp16", NONE)
MOMENTS = (FP32, "bf16", "fp16", "fp8", INT8)


def check_states(main: str, exp_avg: str, exp_avg_sq: str) -> None:
    """Raise UnknownNameError for a type that a state cannot have, PlanError for moments that do not go together."""
    for kind, given, legal in (
        ("type of master weights", main, MAIN),
        ("type of moments", exp_avg, MOMENTS),
        ("type of moments", exp_avg_sq, MOMENTS),
    ):
        if given not in legal:
            raise UnknownNameError.of(kind, given, legal)
    if (exp_avg == INT8) != (exp_avg_sq == INT8):
        raise PlanError(
            f"exp-avg-dtype={exp_avg} exp-avg-sq-dtype={exp_avg_sq}: 8-bit Adam keeps both moments in int8 blocks; "
            "legal: int8 for both, or for none"
        )
