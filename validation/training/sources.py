"""What a publication says of all its runs outside of its table, and what has to be assumed where it says nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType

from ...ir.records import dataclass
from ..rows.recipes import recipe_of
from ..rows.rows import Row

# What the public recipes of Megatron-Bridge set that its tables of results leave out.

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
_CONTAINER = re.compile(r"container ([0-9]+)\.([0-9]+)")


def bridge_cells(row: Row) -> Mapping[str, str]:
    """Return the cells that a row's recipe fills."""
    cells = {"grad_dtype": "bf16", "stack": _stack(row)}  # cfg.ddp.grad_reduce_in_fp32 = False
    if not row.text("model").startswith(DENSE):
        cells["etp"] = "1"  # expert_tensor_parallel_size=1
        if _name(row) == "DeepSeekV3" and "w/o MTP" not in row.text("model"):
            cells["mtp"] = "1"  # the layer that predicts the token after next
        return {**cells, **_nodes(row), **_again(row), **_low(row)}
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
    if name == "DeepSeekV3" and machine.startswith("GB200") and (26, 4) <= container(row) < WHOLE_GRAPHS:
        modules = "mlp"  # of the three layers without experts
    elif name in ("DeepSeekV3", "Kimi_K2"):
        modules = "mla_up_proj mlp" if machine.startswith("H100") else "mla_up_proj"
    elif name == "GPT OSS 120B" and machine.startswith("GB200") and container(row) < WHOLE_GRAPHS:
        modules = "layernorm"
    else:
        return {}
    return {"activation_recompute": "selective", "recompute_modules": modules}


def _low(row: Row) -> Mapping[str, str]:
    """What recipes that capture whole steps multiply in fp8 beside the linear layers.

    `fp8_output_proj` of DeepSeek-V3 and GPT OSS, `fp8_dot_product_attention` of all but DeepSeek-V3 on GB200.
    """
    name = _name(row)
    if _stack(row) != "megatron-bridge-graphs":
        return {}
    head = {"fp8_output_proj": "True"} if name in ("DeepSeekV3", "GPT OSS 120B") else {}
    return head if name == "DeepSeekV3" else {**head, "fp8_attention": "True"}


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


def titan_cells(row: Row) -> Mapping[str, str]:
    """Return the cells that runs of torchtitan of December 2024 and June 2025 fill.

    Recomputation stopped early, as torch does by default: `ptd_checkpoint_wrapper` was given no `early_stop`. Without a
    pipeline, weights in fp8 are taken to be gathered so: these runs need 0.2 GiB less than in bf16, what such gathers
    save (tables 1 and 3 of `benchmarks/llama3_h100_202412_torchtitan.md`). Of those with one no run can be compared;
    its batch is cut into one micro-batch for each stage (`pipeline_parallel_microbatches or pp` in
    `parallelisms/pipeline_llama.py`).
    """
    cells = {} if row.text("activation_recompute") in ("", "none") else {"early_stop": "true"}
    if row.number("pp", 1) > 1:
        each = row.number("global_batch") // (row.number("n_gpus") // (row.number("tp", 1) * row.number("cp", 1)))
        return {**cells, "micro_batch": str(each)}
    return {**cells, "fp8_param_gather": "true"} if recipe_of(row) == "fp8" else cells


def foundry_cells(row: Row) -> Mapping[str, str]:
    """Return the cells that runs of LLM Foundry fill.

    Those on A100 were of torch 1.13, which runs whole layers again (`--image` of `submit_benchmarks.py` in
    scripts/train/benchmarking), those on H100 of torch 2.1, the first that stops early (`IMAGE` of `sweep.sh`;
    pytorch/pytorch pull request 96866).
    """
    old = row.text("accelerator").startswith("A100") and row.text("activation_recompute") == "full"
    return {"early_stop": "false"} if old else {}


GPT = MappingProxyType({"family": "gpt"})
# Scores were written to memory before flash attention was taken up: Megatron-LM in 2023, Megatron-DeepSpeed after it.
UNFUSED = MappingProxyType({"attention": "unfused"})


@dataclass(frozen=True, slots=True)
class Assumed:
    """A setting that a publication leaves out: what is taken for it, in models of which names, and on what grounds."""

    column: str
    value: str
    why: str
    models: tuple[str, ...] = ()

    def holds(self, row: Row) -> bool:
        """Whether it is about a row, which has nothing in the cell."""
        model = row.text("model")
        return not row.text(self.column) and (not self.models or any(text in model for text in self.models))


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication: cells that all its rows have though its table has no such column, and what is assumed.

    Attributes:
        known: column -> value, from the text around the table.
        assumed: settings that are nowhere; the first that holds is taken.
        models: cells of the rows whose model begins with a text: sizes that its table has no columns for.
        unlike: why rows whose model holds a text cannot be predicted.
        unknown: why none of its rows can be predicted, empty for most.
        derived: cells that follow from others of a row, as its publication's own recipes have them.
    """

    known: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[Assumed, ...] = ()
    models: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unlike: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""
    derived: Callable[[Row], Mapping[str, str]] | None = None

    def refused(self, row: Row) -> str:
        """Return why a row cannot be predicted, empty for most."""
        return self.unknown or next((why for text, why in self.unlike.items() if text in row.text("model")), "")


_NO_INTERLEAVING = Assumed("vpp", "1", "not published: none")
_DISTRIBUTED = Assumed("fsdp_or_zero", "zero1", "its recipes use the distributed optimizer")
_RECIPE_SP = Assumed("sequence_parallel", "True", "its recipes split sequences over tp")
_OF_MODELS = (
    # `apply_moe_token_drop` of Megatron-Bridge; routing is balanced, so that no token is left out.
    Assumed("capacity", "1", "the default of its recipe for dropped tokens, all experts full", ("(tokendrop)",)),
)
_NONE_AGAIN = Assumed("activation_recompute", "none", "not published: none")
_ONE_LAYER = "not published: one layer a chunk"
_CHUNKS = MappingProxyType({"GPT-70B": "42", "GPT-177B": "16", "GPT-462B": "7"})
# `performance_mode` of the recipes of NeMo 2.2 and 2.3: grad_reduce_in_fp32=False, tp_comm_overlap=True.
_NEMO_2 = MappingProxyType({"stack": "megatron-core", "grad_dtype": "bf16", "async_tp": "True"})
_OWN_BLOCK = MappingProxyType(
    {"(MegaScale)": "MLP and attention side by side, attention in windows of a size that is not published"}
)
# configs/models/deepseekv2.json and deepseekv3.json of MooreThreads/SimuMax at commit 4dcaae513ba7.
_DEEPSEEK = MappingProxyType(
    {
        "DeepSeek-V2": {"mla": "true", "swiglu": "true", "moe_ffn_hidden": "1536", "shared_expert_ffn": "3072"},
        "DeepSeek-V3": {"mla": "true", "swiglu": "true", "moe_ffn_hidden": "2048", "shared_expert_ffn": "2048"},
    }
)

SOURCES: Mapping[str, Publication] = MappingProxyType(
    {
        "korthikanti2022_table5": Publication({**GPT, **UNFUSED, "stack": "megatron-2022", "grad_dtype": "fp16"}),
        "narayanan2021_table1": Publication(
            {**GPT, **UNFUSED, "stack": "megatron-2022", "grad_dtype": "fp16"},
            (
                Assumed("micro_batch", "8", "not published: the best one", ("GPT-1.7B",)),
                Assumed("micro_batch", "4", "not published: the best one", ("GPT-7.5B",)),
                Assumed("micro_batch", "1", "not published: the best one"),
                Assumed("vpp", "2", "not published: two chunks", ("GPT-39.1B", "GPT-145.6B")),
                Assumed("vpp", "3", _ONE_LAYER, ("GPT-529.6B",)),
            ),
        ),
        "narayanan2021_table2": Publication(
            {**GPT, **UNFUSED, "stack": "megatron-2022", "grad_dtype": "fp16"}, (_NO_INTERLEAVING,)
        ),
        "megascale2024_table2": Publication(
            {**GPT, "stack": "megatron-2022"},
            (
                Assumed("vocab", "64000", "recalled, as its row says"),
                Assumed("micro_batch", "1", "not published: one sequence"),
                _RECIPE_SP,
                Assumed("activation_recompute", "none", "not published: flash attention needs none"),
            ),
            unlike=_OWN_BLOCK,
        ),
        "megascale2024_fig9": Publication(
            {**GPT, "stack": "megatron-2022"},
            (
                Assumed("vocab", "64000", "recalled, as the rows of its table 2 say"),
                Assumed("micro_batch", "1", "not published: one sequence"),
                _RECIPE_SP,
                Assumed("activation_recompute", "none", "not published: flash attention needs none"),
            ),
            unlike=_OWN_BLOCK,
        ),
        "llama3_table4": Publication(
            {"stack": "fsdp2"},
            (
                # Section 3.3.2: two layers were left out so that the first chunk has the embedding alone.
                Assumed("vpp", "8", "not printed in the table: its chunks have one layer each"),
                Assumed("activation_recompute", "none", "as for the shorter rows"),
            ),
        ),
        "deepseek_v3_report": Publication(
            unknown="it is the average of a whole run, with restarts and a batch that grows: no step"
        ),
        "megatron_core_r0.8_h100": Publication(
            {**GPT, "stack": "megatron-core-2024", "async_tp": "True"},
            (
                Assumed("micro_batch", "1", "not published: one sequence"),
                # Messages of the pipeline are "overlapped by default" in its README: with interleaving alone
                # (`overlap_p2p_comm` in megatron/training/arguments.py). 7 layers a stage allow no other number.
                *(Assumed("vpp", chunks, _ONE_LAYER, (name,)) for name, chunks in _CHUNKS.items()),
                _DISTRIBUTED,
                _RECIPE_SP,
                _NONE_AGAIN,
            ),
        ),
        "megatron_core_r0.8_h100_strong": Publication(unknown="neither pp nor dp is given"),
        "megatron_2020_single_node": Publication({**GPT, **UNFUSED, "stack": "megatron-2022", "grad_dtype": "fp16"}),
        "megatron_2020_multi_node": Publication({**GPT, **UNFUSED, "stack": "megatron-2022", "grad_dtype": "fp16"}),
        "llm_foundry_mpt": Publication({"family": "mpt", "stack": "composer-fsdp"}, derived=foundry_cells),
        # NeMo-Framework-Launcher 24.07: `grad_sync_dtype=bf16` in examples/training, which Nemotron's has not;
        # `ub_tp_comm_overlap` in launcher_scripts/conf/training.
        "nemo_24.07": Publication(
            {"stack": "megatron-core-2024", "grad_dtype": "bf16"},
            (_DISTRIBUTED, _RECIPE_SP, _NONE_AGAIN),
            models={"LLAMA2-70B": {"async_tp": "True"}, "Nemotron-8B": {"async_tp": "True", "grad_dtype": "fp32"}},
        ),
        "nemo_25.02": Publication(_NEMO_2, (_DISTRIBUTED, _RECIPE_SP, _NONE_AGAIN)),
        "nemo_25.04": Publication(_NEMO_2, (_RECIPE_SP, _NONE_AGAIN)),
        "megatron_bridge_pretrain": Publication(
            assumed=(_RECIPE_SP, _NONE_AGAIN, _NO_INTERLEAVING, *_OF_MODELS), derived=bridge_cells
        ),
        "megatron_bridge_sft": Publication(
            unknown="sequences are packed and of unequal length: no step of pre-training"
        ),
        # `llama3_70b_lora_config`: peft.target_modules = ["linear_qkv"], dim 16 as in recipes of 70B.
        "megatron_bridge_lora": Publication(
            {"lora_rank": "16", "lora_modules": "q_proj k_proj v_proj"},
            assumed=(_RECIPE_SP, _NONE_AGAIN),
            derived=bridge_cells,
        ),
        "torchtitan": Publication({"stack": "torchtitan"}, derived=titan_cells),
        "vtrain_single_node": Publication({**GPT, **UNFUSED, "stack": "megatron-deepspeed", "grad_dtype": "fp16"}),
        "vtrain_multi_node": Publication({**GPT, **UNFUSED, "stack": "megatron-deepspeed", "grad_dtype": "fp16"}),
        "simumax_b200": Publication({"stack": "megatron-core-sync", "cp_method": "ulysses"}, models=_DEEPSEEK),
        "maxtext_tiering": Publication(unknown="its degrees and batch are in no table"),
        "maxtext_v5p_2024": Publication(unknown="the sizes of its models, degrees and batch are in no table"),
        "mt_nlg_530b": Publication({**GPT, **UNFUSED, "stack": "megatron-deepspeed"}, (_NO_INTERLEAVING,)),
        "llama1": Publication(unknown="its degrees are not disclosed"),
        "nanotron_h100": Publication({"stack": "nanotron"}),
        # Of memory.
        "simumax_b200_memory": Publication({"stack": "megatron-core"}),
        "megatron_golden_values": Publication({"stack": "megatron-core"}),
        "torchtitan_memory": Publication({"stack": "torchtitan"}, derived=titan_cells),
        "nanotron_h100_fit": Publication({"stack": "nanotron"}),
    }
)

# Settings that stand in the note of a row.
_NOTED = MappingProxyType(
    {"tied_embeddings": re.compile(r"tied embeddings=(\w+)"), "async_tp": re.compile(r"\basync TP\b")}
)


@dataclass(frozen=True, slots=True)
class Completed:
    """A row with every setting in its cells, and the settings that were assumed, in words."""

    row: Row
    assumed: tuple[str, ...]


def completed(row: Row) -> Completed:
    """Fill in what a row's publication says elsewhere, and what has to be assumed.

    >>> row = Row({"id": "a", "dataset": "narayanan2021_table1", "model": "GPT-7.5B", "micro_batch": ""})
    >>> completed(row).assumed
    ('micro_batch 4 (not published: the best one)',)
    """
    source = SOURCES.get(row.dataset, Publication())
    sizes = next((of for name, of in source.models.items() if row.text("model").startswith(name)), {})
    derived = {} if source.derived is None else source.derived(row)
    # What a note says of a setting: its value, or that it is on.
    noted = {
        c: (found[1] if found.re.groups else "true")
        for c, pattern in _NOTED.items()
        if (found := pattern.search(row.text("note")))
    }
    given = {c: v for c, v in {**source.known, **sizes, **noted, **derived}.items() if not row.text(c)}
    cells = {**row.cells, **given}
    said: list[str] = []
    for one in source.assumed:
        filled = Row(cells, row.line)
        if one.holds(filled) and _matters(one, filled):
            cells[one.column] = one.value
            said.append(f"{one.column} {one.value} ({one.why})")
    return Completed(Row(cells, row.line), tuple(said))


def _matters(one: Assumed, row: Row) -> bool:
    """Chunks need a pipeline, what is split over tp needs tp."""
    needed = {"vpp": "pp", "sequence_parallel": "tp"}.get(one.column)
    return needed is None or row.number(needed, 1) > 1
