"""Commands that start a server, of vLLM, SGLang, TensorRT-LLM and LMDeploy, into the words of a plan.

Names as in vLLM 0.25 (vllm/config), SGLang 0.5 (sglang/srt/server_args.py), `trtllm-serve --help` of TensorRT-LLM 1.0,
`lmdeploy serve api_server --help` of 0.9. Degrees are read in the meaning of the engine that they come from: all of
them shard whole experts over the tensor-parallel ranks of all data-parallel attention ranks, so that SGLang's
`--tp 8 --ep 8` and vLLM's `--tensor-parallel-size 8 --enable-expert-parallel` are eight ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..ir.errors import ParseError
from ..ir.records import dataclass
from ..ir.text.formats import read_json
from .launch import Launch, Reading, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """What an engine calls what servers have in common; several names of one thing, the first that is there holds.

    Attributes:
        engine: its name here.
        attends_apart: a switch by which each rank, or each of the `dp` groups, attends to requests of its own.
        ranks_are_tp: whether `dp` divides the ranks that `tp` counts (SGLang), instead of multiplying them.
    """

    engine: str
    tp: tuple[str, ...]
    pp: tuple[str, ...]
    dp: tuple[str, ...]
    ep: tuple[str, ...]
    seqs: tuple[str, ...]
    tokens: tuple[str, ...]
    memory: tuple[str, ...]
    block: tuple[str, ...]
    kv_dtype: tuple[str, ...]
    longest: tuple[str, ...]
    quantization: tuple[str, ...]
    model: tuple[str, ...]
    whole_experts: tuple[str, ...] = ()
    attends_apart: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    ranks_are_tp: bool = False


ENGINES: Mapping[str, ServerFlags] = MappingProxyType(
    {
        "vllm": ServerFlags(
            engine="vllm",
            tp=("tensor_parallel_size", "tp"),
            pp=("pipeline_parallel_size", "pp"),
            dp=("data_parallel_size", "dp"),
            ep=(),
            whole_experts=("enable_expert_parallel", "ep"),
            seqs=("max_num_seqs",),
            tokens=("max_num_batched_tokens",),
            memory=("gpu_memory_utilization",),
            block=("block_size",),
            kv_dtype=("kv_cache_dtype",),
            longest=("max_model_len",),
            quantization=("quantization", "q"),
            model=("model",),
            eager=("enforce_eager",),
        ),
        "sglang": ServerFlags(
            engine="sglang",
            tp=("tp_size", "tp", "tensor_parallel_size"),
            pp=("pp_size", "pp", "pipeline_parallel_size"),
            dp=("dp_size", "dp", "data_parallel_size"),
            ep=("ep_size", "ep", "expert_parallel_size"),
            seqs=("max_running_requests",),
            tokens=("chunked_prefill_size", "max_prefill_tokens"),
            memory=("mem_fraction_static",),
            block=("page_size",),
            kv_dtype=("kv_cache_dtype",),
            longest=("context_length",),
            quantization=("quantization",),
            model=("model_path", "model"),
            eager=("disable_cuda_graph",),
            attends_apart=("enable_dp_attention",),
            ranks_are_tp=True,
        ),
        "tensorrt-llm": ServerFlags(
            engine="tensorrt-llm",
            tp=("tp_size", "tensor_parallel_size"),
            pp=("pp_size", "pipeline_parallel_size"),
            dp=(),
            attends_apart=("enable_attention_dp",),
            ranks_are_tp=True,
            ep=("ep_size", "moe_expert_parallel_size"),
            seqs=("max_batch_size",),
            tokens=("max_num_tokens",),
            memory=("kv_cache_free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"),
            block=("tokens_per_block", "kv_cache_config.tokens_per_block"),
            kv_dtype=("kv_cache_config.dtype",),
            longest=("max_seq_len",),
            quantization=(),
            model=("model",),
        ),
        "lmdeploy": ServerFlags(
            engine="lmdeploy",
            tp=("tp",),
            pp=(),
            dp=("dp",),
            ep=("ep",),
            seqs=("max_batch_size",),
            tokens=("max_prefill_token_num",),
            memory=("cache_max_entry_count",),
            block=("cache_block_seq_len",),
            kv_dtype=(),
            longest=("session_len",),
            quantization=("model_format",),
            model=("model_path",),
            eager=("eager_mode",),
        ),
    }
)
_RECIPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fp8", "fp8_per_tensor", "w8a8_fp8"), "fp8"),
        **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16"), "w4a16"),
        **dict.fromkeys(("modelopt_fp4", "nvfp4", "modelopt_nvfp4"), "nvfp4"),
        **dict.fromkeys(("w8a8_int8", "int8"), "int8"),
        "modelopt": "fp8",
        "mxfp4": "mxfp4",
        "mxfp8": "mxfp8",
        "fp8_per_block": "fp8-block",
        "fp8_per_channel": "fp8-rowwise",
    }
)
_SPREAD = ("decode_context_parallel_size", "dcp", "dcp_size")
_CACHES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8", "nvfp4": "fp4", "fp4_e2m1": "fp4"}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def server(name: str, given: Mapping[str, Value], shown: Mapping[str, str], model: str | None = None) -> Launch:
    """Return a launch of a server; ParseError for values that are none of a flag's.

    Args:
        name: of the engine, one of `ENGINES`.
        given: settings by plain name.
        shown: how each stands in the launch.
        model: the model where it stands alone on the command line.
    """
    r, e = Reading(name, given, shown), ENGINES[name]
    r.words["phase"], r.words["engine"] = "serve", e.engine
    model = model or r.text(*e.model)
    r.say("model", model, *e.model)
    _degrees(r, e)
    _limits(r, e)
    _types(r, e)
    _speculation(r)
    return r.done("servers")


def _degrees(r: Reading, e: ServerFlags) -> None:
    """Ranks of attention, and experts whole over all of them."""
    tp, pp = r.count(*e.tp) or 1, (r.count(*e.pp) if e.pp else None) or 1
    dp = (r.count(*e.dp) if e.dp else None) or 1
    attends_apart = bool(e.attends_apart) and r.flag(*e.attends_apart)
    if attends_apart and not e.dp:
        dp = tp
    if e.ranks_are_tp and attends_apart:
        if tp % dp:
            raise ParseError(f"{r.shown(e.tp[0])} {tp} is no multiple of the {dp} ranks that attend apart")
        ranks, tp = tp, tp // dp
    else:
        ranks = tp * dp
    # Ranks of tensor parallelism that share out the tokens of a cache; layers behind attention are split over both.
    spread = r.count(*_SPREAD) or 1
    if spread > 1 and tp % spread:
        raise ParseError(f"{r.shown(next(filter(r.has, _SPREAD)))} {spread} does not divide the {tp} ranks of tp")
    tp //= spread
    # A switch takes all ranks; a degree below them splits experts inside as well, and stays what it is.
    switched = any(r.flag(one) for one in e.whole_experts if r.has(one))
    ep = ranks if switched else (r.count(*e.ep) if e.ep else None) or 1
    # Experts that lie whole over tp lie whole over the ranks of a spread cache too.
    over, ep = ep, 1 if ep % spread else ep // spread
    whole = 1 < over == ep * spread
    r.say("tp", tp, *e.tp)
    r.say("cp", spread if spread > 1 else None, *_SPREAD)
    r.say("pp", pp if pp > 1 else None, *e.pp)
    r.say("dp", dp if dp > 1 else None, *e.dp, *e.attends_apart, "enable_dp_lm_head")
    # No plan splits experts over a part of the ranks that spread a cache: such a degree is listed as left out.
    said = () if over > 1 and over % spread else e.ep
    r.say("ep", ep if ep > 1 else None, *said, *e.whole_experts, "moe_dense_tp_size")
    if whole and tp * spread > 1 and over == ranks:
        r.words["etp"] = 1
    backend = r.text("all2all_backend", "moe_a2a_backend")
    if backend is not None and whole:
        r.say(
            "ep_exchange",
            "allgather" if "allgather" in backend or backend in ("naive", "none") else "alltoall",
            "all2all_backend",
            "moe_a2a_backend",
            "enable_deepep_moe",
            "deepep_mode",
        )
    dual = ("enable_dbo", "enable_two_batch_overlap")
    r.say("dual_batch", True if whole and any(map(r.flag, dual)) else None, *dual)
    r.say("eplb", True if whole and r.flag("enable_eplb") else None, "enable_eplb")
    copies = r.number("ep_num_redundant_experts", "num_redundant_experts")
    r.say("redundant_experts", copies if whole else None, "ep_num_redundant_experts", "num_redundant_experts")
    if not whole:
        r.understand("of experts on one rank", "all2all_backend", "moe_a2a_backend", "deepep_mode")


def _limits(r: Reading, e: ServerFlags) -> None:
    r.say("max_num_seqs", r.count(*e.seqs), *e.seqs)
    tokens = r.number(*e.tokens)
    chunked = r.flag("enable_chunked_prefill", usual=True) and not r.flag("no_enable_chunked_prefill")
    if tokens is not None and tokens <= 0:
        chunked = False
    r.say("chunked_prefill", tokens if chunked else 0, *e.tokens, "enable_chunked_prefill", "no_enable_chunked_prefill")
    if tokens is None and chunked:
        r.words.pop("chunked_prefill", None)
    share = r.real(*e.memory)
    if share is not None and share <= 0:
        raise ParseError(f"{r.shown(e.memory[0])}: {share:g}; give a share of the memory above 0")
    r.say("memory_utilization", share, *e.memory)
    r.say("block_size", r.count(*e.block), *e.block)
    if chunked:
        r.understand("longest request; say --isl and --osl", *e.longest)
    else:
        r.say("max_model_len", r.count(*e.longest), *e.longest)


def _types(r: Reading, e: ServerFlags) -> None:
    dtype = r.text("dtype")
    r.say("dtype", None if dtype in (None, "auto") else _DTYPES.get(dtype, dtype), "dtype")
    recipe = r.text(*e.quantization) if e.quantization else None
    if recipe in _RECIPES:
        r.say("precision", _RECIPES[str(recipe)], *e.quantization)
    elif recipe is None:
        # Weights are loaded as the checkpoint has them.
        r.words["precision"] = "as-published"
    cache = r.text(*e.kv_dtype) if e.kv_dtype else None
    if cache in _CACHES or cache in ("auto", "bfloat16"):
        r.say("kv_dtype", _CACHES.get(cache), *e.kv_dtype)
    if e.eager and r.flag(*e.eager):
        r.say("cuda_graph", False, *e.eager)
    r.understand("CUDA graphs, as the engine has them", *e.eager)


def _speculation(r: Reading) -> None:
    """What drafts: vLLM's --speculative-config, SGLang's --speculative-algorithm."""
    text = r.text("speculative_config")
    if text is not None:
        try:
            said = read_json(text, "--speculative-config")
        except ParseError:
            raise ParseError(f"--speculative-config: '{text[:60]}' is no JSON") from None
        number = said.get("num_speculative_tokens") if isinstance(said, dict) else None
        method = str(said.get("method", "")) if isinstance(said, dict) else ""
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ParseError(
                f"--speculative-config: num_speculative_tokens {number}; give a whole number of 1 and more"
            )
        if isinstance(number, int) and ("mtp" in method or "eagle" in method or "ngram" in method):
            r.say("ngram" if "ngram" in method else "mtp", number, "speculative_config")
    if (r.text("speculative_config.decoding_type") or "").lower() in ("mtp", "eagle", "eagle3"):
        names = ("speculative_config.num_nextn_predict_layers", "speculative_config.max_draft_len")
        r.say("mtp", r.count(*names), "speculative_config.decoding_type", *names)
    if r.text("method") in ("mtp", "eagle", "eagle3"):
        r.say("mtp", r.count("num_speculative_tokens"), "method", "num_speculative_tokens")
    steps = r.count("speculative_num_steps", "speculative_num_draft_tokens")
    if r.text("speculative_algorithm", "speculative_algo") is not None and steps:
        r.say("mtp", steps, "speculative_algorithm", "speculative_algo", "speculative_num_steps")
        if (r.count("speculative_eagle_topk") or 1) == 1:
            # A tree of drafts is left out.
            r.understand("drafts as a chain", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if "mtp" in r.words:
        r.words["acceptance"] = 0.8
        r.assume("acceptance 0.8: no launch says how many draft tokens are accepted")
