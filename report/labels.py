"""What people read for the parts of an estimate, for what bounds it and for the numbers of a machine."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ..ir.plan import Family
from ..ir.plan.low_inference import SAME
from ..ir.plan.optimizer_states import FP32
from ..ir.plan.precision import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.machine.system import System
    from ..driver.serve.server import Server

# Patterns of --precision-of that the first line of an estimate has room for.
_SHOWN = 2
_PARTS = MappingProxyType(
    {
        "compute.memory": "data movement",
        "compute.lent_sms": "SM contention",
        "offload": "host copies",
        "optimizer.clip": "gradient clipping",
        "checkpoint": "checkpoints",
    }
)
_OF_REQUESTS = MappingProxyType(
    {
        "host.request": "host: request overhead",
        "host.steps": "host: steps",
        "queue": "waits before the first token",
        "interference": "prefill interference",
        "transfer": "cache to the decode pool",
        "draft": "drafts",
    }
)
_BOUNDS = MappingProxyType(
    {
        "matrix": "matrix units",
        "vector": "vector units",
        "ingest": "on-chip ingest",
        "hbm": "HBM bandwidth",
        "l2": "L2 bandwidth",
        "launch": "launch + fixed work",
        "host_link": "host link",
    }
)
_PARAMETERS = MappingProxyType(
    {
        "overhead.kernels": "launch + fixed work",
        "overhead.collectives": "fixed of collectives",
        "overhead.host": "host overheads",
        "overhead.network": "measured messages",
    }
)


def part_label(name: str) -> str:
    """Return what people read for a part of the breakdown.

    >>> part_label("compute.matmul"), part_label("comm.tp"), part_label("optimizer.clip")
    ('matmul', 'tp communication', 'gradient clipping')
    """
    kind, _, rest = name.partition(".")
    if name in _PARTS or not rest:
        return _PARTS.get(name, name.replace("_", " "))
    rest = rest.replace("_", " ")
    return {"comm": f"{rest} communication", "compute": rest}.get(kind, f"{kind} {rest}")


def request_part_label(name: str) -> str:
    """Return what people read for a part of the time of a request.

    >>> request_part_label("decode.compute.matmul"), request_part_label("prefill.comm.tp"), request_part_label("queue")
    ('decode: matmul', 'prefill: tp communication', 'waits before the first token')
    """
    if name in _OF_REQUESTS:
        return _OF_REQUESTS[name]
    phase, _, rest = name.partition(".")
    return f"{phase}: {part_label(rest)}"


def bound_label(name: str) -> str:
    """Return what people read for what bounds a step.

    >>> bound_label("hbm"), bound_label("network.nvlink.latency")
    ('HBM bandwidth', 'nvlink latency')
    """
    return _BOUNDS.get(name, name.removeprefix("network.").replace(".", " "))


def parameter_label(name: str) -> str:
    """Return what people read for a number of a machine.

    >>> parameter_label("chip.matmul.bf16"), parameter_label("network.nvlink.bandwidth")
    ('matrix peak bf16', 'nvlink bandwidth')
    """
    if name.startswith("chip.matmul."):
        return f"matrix peak {name.rpartition('.')[2]}"
    from ..backends.machine.chip import Chip
    from ..backends.machine.files.section import numbers_of

    _, _, rest = name.partition(".")
    labels = {f"chip.{number.path}": number.key.label for number in numbers_of(Chip)}
    return labels.get(name) or _PARAMETERS.get(name, rest.replace(".", " ").replace("_", " "))


def low_types(family: Family) -> str:
    """Say what stands behind the type of a model: recipes of low precision, types of its cache and optimizer states.

    >>> low_types(Family(precision="fp8", kv_dtype="int8")), low_types(Family())
    ('+fp8 kv int8', '')
    >>> low_types(Family(precision="fp8", precision_of=(("lm_head", "fp8-block"), ("*experts*", "nvfp4"))))
    '+fp8 lm_head=fp8-block *experts*=nvfp4'
    >>> low_types(Family(main_params_dtype="none", exp_avg_dtype="bf16"))
    ' states none/bf16/fp32'
    """
    recipes = [recipe for _, recipe in family.published_of if recipe not in (NONE, family.precision)]
    recipe = "".join(f"+{name}" for name in dict.fromkeys((family.precision, *recipes)) if name != NONE)
    given = "".join(f" {pattern}={name}" for pattern, name in family.precision_of[:_SHOWN])
    more = len(family.precision_of) - _SHOWN
    cache = "" if family.kv_dtype == SAME else f" kv {family.kv_dtype}"
    states = f" states {'/'.join(family.states)}" if set(family.states) != {FP32} else ""
    return recipe + given + (f" and {more} more" if more > 0 else "") + cache + states


def batch_of(server: Server) -> str:
    """Say what one batch is of: a replica, or a rank with attention of its own where ranks share experts."""
    return "rank" if server.times.coupled > 1 else "replica"


def software_label(system: System) -> str:
    """Name the software of a system, and the flags that would choose another where nobody typed any.

    >>> from slipstick.backends.machine.load import load_system
    >>> software_label(load_system("dgx-h100", stack="fsdp2"))
    'fsdp2'
    """
    return stack_label(system.stack.name, system.assumed)


def stack_label(stack: str, assumed: Sequence[str]) -> str:
    """Name a stack; the pure machine is no software.

    >>> stack_label("default", ("stack",))
    'no software (assumed; --stack)'
    """
    name = "no software" if stack in ("default", "none") else stack
    flags = ", ".join(f"--{flag}" for flag in assumed)
    return f"{name} (assumed; {flags})" if assumed else name
