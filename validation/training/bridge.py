"""What the public recipes of Megatron-Bridge set that its tables of results leave out.

Source: NVIDIA-NeMo/Megatron-Bridge `scripts/performance/configs/*/` of 25.09 to 26.08, by model, machine and precision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ..rows.rows import Row

# From this container on recipes of models with experts capture whole steps in CUDA graphs and run the layers of two
# micro-batches in turn (`cuda_graph_impl="full_iteration"`, `moe_a2a_overlap=True`, `cutedsl_fused_grouped_mlp=True`).
WHOLE_GRAPHS = (26, 6)
DENSE = "LLAMA"
# Experts of these rows take a fixed number of rows: no rank waits for the counts of others before it sends.
DROPPED = "(tokendrop)"
# Machines whose hosts are x86 servers, not a Grace processor for each two chips.
_X86 = ("B200 (DGX)", "B300 (DGX)", "H100-SXM-80GB (DGX)")
# A token goes to no more nodes than this: DeepSeek-V3, arXiv 2412.19437, section 2.1.2.
_LIMITED = MappingProxyType({"DeepSeekV3": 4})
_EXPERTS_OF_A_TOKEN = 8
_CONTAINER = re.compile(r"container (\d+)\.(\d+)")


def bridge_cells(row: Row) -> Mapping[str, str]:
    """Return the cells that a row's recipe fills."""
    cells = {"grad_dtype": "bf16", "stack": _stack(row)}  # cfg.ddp.grad_reduce_in_fp32 = False
    if not row.text("model").startswith(DENSE):
        return {**cells, "etp": "1", **_nodes(row), **_again(row)}  # expert_tensor_parallel_size=1
    if row.number("tp", 1) > 1 and row.text("precision") != "NVFP4":
        cells["async_tp"] = "True"  # comm_overlap.tp_comm_overlap with userbuffers; False if precision == "nvfp4"
    return cells


def _stack(row: Row) -> str:
    model, hosts_x86 = _name(row), row.text("accelerator") in _X86
    if model.startswith(DENSE) or DROPPED in row.text("model"):
        return "megatron-bridge"
    if hosts_x86 and _in_turn(row):
        return "megatron-bridge-batches"
    if hosts_x86 and model == "Qwen3_235B_a22B":
        return "megatron-bridge-alltoall"  # moe_token_dispatcher_type="alltoall"
    late = container(row) >= WHOLE_GRAPHS
    if model == "GPT OSS 120B" and not late:
        return "megatron-bridge-alltoall"  # no `moe_flex_dispatcher_backend`
    if hosts_x86:
        return "megatron-bridge-x86"
    return "megatron-bridge-graphs" if late and model != "Kimi_K2" else "megatron-bridge"


def _again(row: Row) -> Mapping[str, str]:
    """What recipes name in `recompute_modules`; `moe_act`, which some name beside it, is inside of a kernel here."""
    name, machine = _name(row), row.text("accelerator")
    if name in ("DeepSeekV3", "Kimi_K2"):
        modules = "mla_up_proj"
    elif name == "GPT OSS 120B" and machine.startswith("GB200") and container(row) < WHOLE_GRAPHS:
        modules = "layernorm"
    else:
        return {}
    return {"activation_recompute": "selective", "recompute_modules": modules}


def _in_turn(row: Row) -> bool:
    """Whether a recipe without graphs of whole steps runs layers of two micro-batches in turn: `moe_a2a_overlap=True`.

    On H100 those of Qwen3 235B, and of 30B while it had a pipeline; on B300 that of 235B up to 26.02.
    """
    on_h100 = row.text("accelerator").startswith("H100")
    if _name(row) == "Qwen3_235B_a22B":
        return on_h100 or (row.text("accelerator") == "B300 (DGX)" and container(row) <= (26, 2))
    return on_h100 and _name(row) == "Qwen3_30B_a3B" and row.number("pp", 1) > 1


def _name(row: Row) -> str:
    return row.text("model").partition(" (")[0]


def container(row: Row) -> tuple[int, int]:
    """Return year and month of the container that a row was measured with, (0, 0) where it says none.

    >>> container(Row({"note": "container 26.04.01 NeMo Container; Pre-Training Performance"}))
    (26, 4)
    """
    found = _CONTAINER.search(row.text("note"))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _nodes(row: Row) -> Mapping[str, str]:
    """Dispatchers of these recipes send a token once to each node, whatever its experts there (HybridEP, DeepEP)."""
    nodes = row.number("ep", 1) // row.number("gpus_per_node", 1)
    if _stack(row) != "megatron-bridge-x86" or nodes < 2:
        return {}
    return {"routing_nodes": str(min(nodes, _LIMITED.get(_name(row), _EXPERTS_OF_A_TOKEN)))}
