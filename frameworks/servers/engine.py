"""Settings that all servers have: one table of an engine's names gives its rows, read and written.

Whole experts lie over the tensor-parallel ranks of all data-parallel attention ranks, so that SGLang's `--tp 8 --ep 8`
and vLLM's `--tensor-parallel-size 8 --enable-expert-parallel` are eight ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MappingProxyType

from ...ir.errors import ParseError, SlipstickError
from ...ir.graph import Workload
from ...ir.plan.precision import NONE
from ...ir.records import dataclass
from ...ir.text.formats import read_json
from ..export import ExportSubject, Flag
from ..launch import Reading, Word, plain
from ..rows import COUNT, Codec, FixedWord, Framework, Group, SettingRow, Text, Words, Writing, choice, nothing, switch

_DTYPES: Mapping[str, str] = MappingProxyType(
    {"bf16": "bfloat16", "fp16": "float16 half", "fp32": "float32 float", "": "auto"}
)
# Recipes by the names that quantized checkpoints and loaders have for them.
RECIPES: Mapping[str, str] = MappingProxyType(
    {
        "fp8": "fp8 fp8_per_tensor w8a8_fp8 modelopt",
        "w4a16": "awq awq_marlin gptq gptq_marlin moe_wna16",
        "nvfp4": "nvfp4 modelopt_fp4 modelopt_nvfp4 nvfp4_per_token",
        "int8": "int8 w8a8_int8",
        "w8a16": "int8_per_channel_weight_only",
        "mxfp4": "mxfp4",
        "mxfp8": "mxfp8",
        "fp8-block": "fp8_per_block",
        "fp8-rowwise": "fp8_per_channel",
    }
)
CACHES: Mapping[str, str] = MappingProxyType(
    {
        "same": "auto bfloat16",
        "fp8": "fp8 fp8_e4m3 fp8_e5m2",
        "int8": "int8 int8_per_token_head",
        "fp4": "nvfp4 fp4_e2m1",
    }
)
_SPREAD = ("decode_context_parallel_size", "dcp", "dcp_size")
_NO_CACHE_TYPE = "kv_dtype int8 with one scale a tensor: there is one with a scale for each token and head"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTraits:
    """What tells an engine from others, besides names.

    Attributes:
        ranks_are_tp: whether `dp` divides the ranks that `tp` counts (SGLang), instead of multiplying them.
        memory_of_free: whether its share of the memory is of what is free beside the weights.
        unchunked: what is written where prompts are not cut.
        online: recipes that it makes of weights in 16 bits while it loads them, with its name of each.
        caches: types of the cache that it has a name for.
        speculates: what is written of drafts: the words `mtp`, `ngram`, `draft`, `draft_length` of a server.
    """

    ranks_are_tp: bool = False
    memory_of_free: bool = False
    unchunked: tuple[Flag, ...] = ()
    online: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    speculates: Callable[[Writing], None] = nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """An engine's names of what servers have in common: of several the first is written, the first there is read.

    Attributes:
        attends_apart: a switch by which each rank, or each of the `dp` groups, attends to requests of its own.
        whole_experts: a switch by which experts lie whole over all ranks, in place of a degree.
        exchange: a flag that picks the exchange of experts' rows.
        traits: what no name says.
    """

    tp: str
    pp: str = ""
    dp: str = ""
    ep: str = ""
    seqs: str
    tokens: str
    memory: str
    block: str
    kv_dtype: str = ""
    longest: str
    quantization: str = ""
    model: str
    whole_experts: str = ""
    attends_apart: str = ""
    spread: str = ""
    eager: str = ""
    exchange: str = ""
    traits: ServerTraits = ServerTraits()


def engine(
    name: str,
    title: str,
    version: str,
    flags: ServerFlags,
    render: Callable[[ExportSubject, Sequence[Flag]], str],
    benchmark: str = "",
) -> Framework:
    """Return the vocabulary of an engine."""
    e = flags
    degrees = {word: names.split()[0] for word, names in (("tp", e.tp), ("pp", e.pp)) if names}
    write_share = _Share.write_all if e.traits.memory_of_free else _Share.write
    # Names of other engines are read too.
    caches = {word: f"{e.traits.caches.get(word, '')} {texts}" for word, texts in CACHES.items()}
    return Framework(
        name=name,
        title=title,
        version=version,
        trains=False,
        base={"phase": "serve", "engine": name},
        settings="servers",
        left=partial(_left, e),
        render=render,
        benchmark=benchmark,
        rows=(
            Group("model", lambda r: r.say("model", r.alone or r.text(*_names(e.model)), *_names(e.model))),
            Group("tp pp cp dp ep etp ep_exchange", partial(_read_degrees, e), partial(_write_degrees, e), degrees),
            Group("max_model_len seq", write=partial(_Longest.write, e)),
            SettingRow("max_num_seqs", e.seqs),
            Group("chunked_prefill", partial(_read_tokens, e), partial(_write_tokens, e)),
            Group("", partial(_Longest.read, e)),
            SettingRow("memory_utilization", e.memory, Codec(_Share.read, write_share)),
            SettingRow("block_size", e.block, COUNT),
            SettingRow("dtype", "--dtype", Codec(_Dtype.read, choice(_DTYPES).write)),
            SettingRow("precision", e.quantization, _recipes(e.traits.online)),
            *_optional(e.kv_dtype, lambda names: SettingRow("kv_dtype", names, choice(caches, idle="same"))),
            *_optional(e.eager, lambda names: SettingRow("cuda_graph", names, switch(False))),
            Group("", lambda r: r.understand("CUDA graphs, as the engine has them", *_names(e.eager))),
            Group("", _read_speculation, e.traits.speculates),
            Group("sp precision_of capacity_factor attention mla", write=_write_unsaid),
            FixedWord("tp_plan", ("megatron",), "layers are split in its own way"),
            FixedWord("kernels", ("fused",), "its own are fused"),
        ),
    )


def _optional(names: str, row: Callable[[str], SettingRow]) -> tuple[SettingRow, ...]:
    return (row(names),) if names else ()


def _names(flags: str) -> tuple[str, ...]:
    return tuple(map(plain, flags.split()))


def _read_degrees(e: ServerFlags, r: Reading) -> None:
    """Read ranks of attention, and experts whole over all of them."""
    tp, pp = r.count(*_names(e.tp)) or 1, r.count(*_names(e.pp)) or 1
    dp = r.count(*_names(e.dp)) or 1
    attends_apart = bool(e.attends_apart) and r.flag(*_names(e.attends_apart))
    if attends_apart and not e.dp:
        dp = tp
    if e.traits.ranks_are_tp and attends_apart:
        if tp % dp:
            raise ParseError(f"{r.shown(_names(e.tp)[0])} {tp} is no multiple of the {dp} ranks that attend apart")
        ranks, tp = tp, tp // dp
    else:
        ranks = tp * dp
    # Ranks of tensor parallelism that share out the tokens of a cache; layers behind attention are split over both.
    spread = r.count(*_SPREAD) or 1
    if spread > 1 and tp % spread:
        raise ParseError(f"{r.shown(next(filter(r.has, _SPREAD)))} {spread} does not divide the {tp} ranks of tp")
    tp //= spread
    # A switch takes all ranks; a degree below them splits experts inside as well, and stays what it is.
    switched = any(r.flag(name) for name in _names(e.whole_experts) if r.has(name))
    ep = ranks if switched else r.count(*_names(e.ep)) or 1
    # Experts that lie whole over tp lie whole over the ranks of a spread cache too.
    over, ep = ep, 1 if ep % spread else ep // spread
    whole = 1 < over == ep * spread
    r.say("tp", tp, *_names(e.tp))
    r.say("cp", spread if spread > 1 else None, *_SPREAD)
    r.say("pp", pp if pp > 1 else None, *_names(e.pp))
    r.say("dp", dp if dp > 1 else None, *_names(e.dp), *_names(e.attends_apart), "enable_dp_lm_head")
    # No plan splits experts over a part of the ranks that spread a cache: such a degree is listed as left out.
    said = () if over > 1 and over % spread else _names(e.ep)
    r.say("ep", ep if ep > 1 else None, *said, *_names(e.whole_experts), "moe_dense_tp_size")
    if whole and tp * spread > 1 and over == ranks:
        r.words["etp"] = 1
    _read_exchange(r, whole)


_EXCHANGES = ("all2all_backend", "moe_a2a_backend", "enable_deepep_moe", "deepep_mode")


def _read_exchange(r: Reading, whole: bool) -> None:
    """Read how rows get to whole experts, and what balances them."""
    backend = r.text("all2all_backend", "moe_a2a_backend")
    if backend is not None and whole:
        gathers = "allgather" in backend or backend in ("naive", "none")
        r.say("ep_exchange", "allgather" if gathers else "alltoall", *_EXCHANGES)
    dual = ("enable_dbo", "enable_two_batch_overlap")
    r.say("dual_batch", True if whole and any(map(r.flag, dual)) else None, *dual)
    r.say("eplb", True if whole and r.flag("enable_eplb") else None, "enable_eplb")
    copies = r.number("ep_num_redundant_experts", "num_redundant_experts")
    r.say("redundant_experts", copies if whole else None, "ep_num_redundant_experts", "num_redundant_experts")
    if not whole:
        r.understand("of experts on one rank", "all2all_backend", "moe_a2a_backend", "deepep_mode")


def _write_degrees(e: ServerFlags, w: Writing) -> None:
    plan, family = w.plan, w.family
    # Ranks of tensor parallelism share out a cache in groups in decode steps alone.
    spreads = w.subject.is_server or family.workload is Workload.DECODE
    spread = plan.cp if e.spread and spreads else 1
    shared = plan.dp > 1 and _together(w.subject)
    apart = bool(e.attends_apart) and shared and (family.ep or family.etp_dp)
    ranks = plan.tp * plan.dp
    _say(w, e.tp, plan.tp * (plan.dp if e.traits.ranks_are_tp and apart else spread))
    if spread > 1:
        _say(w, e.spread, spread)
    if plan.pp > 1:
        _say(w, e.pp, plan.pp)
    if e.dp and shared:
        _say(w, e.dp, plan.dp)
    if apart:
        _say(w, e.attends_apart, None if e.attends_apart.startswith("--") else True)
    if family.ep and e.whole_experts:
        _say(w, e.whole_experts, None)
        if family.exchange == "allgather":
            w.say("--all2all-backend", "allgather_reducescatter")
    elif family.ep:
        _say(w, e.ep, plan.ep)
        if e.exchange:
            _say(w, e.exchange, "none" if family.exchange == "allgather" else "deepep")
    over_all = plan.ep in (1, ranks)
    w.lose(f"ep {plan.ep} with tp {plan.tp} and dp {plan.dp}: experts are sharded over all {ranks} ranks", not over_all)
    w.lose(f"etp {plan.tp} with ep {plan.ep}: experts are whole on a rank", plan.ep > 1 and plan.tp > 1 and family.etp)
    alone = plan.dp > 1 and not (shared and (e.dp or apart))
    why = "it has no replicas of its own" if _together(w.subject) else "as one they would share experts"
    w.lose(f"dp {plan.dp} with ep {plan.ep}: start {plan.dp} such servers; {why}", alone)
    each = apart and not e.dp and plan.tp > 1
    w.lose(f"tp {plan.tp} with dp {plan.dp}: each of the {ranks} ranks attends to requests of its own", each)
    w.lose(f"cp {plan.cp}: a prompt is not split over GPUs", plan.cp > 1 and spread == 1)


def _say(w: Writing, names: str, value: Text) -> None:
    w.say(names.split()[0], value)


def _together(subject: ExportSubject) -> bool:
    """Whether replicas are one server: with experts they would share them, so replicas that share none stand alone."""
    has_experts = subject.number("n_routed_experts", "num_local_experts", "num_experts") is not None
    return not has_experts or subject.family.ep or subject.family.etp_dp


def _read_tokens(e: ServerFlags, r: Reading) -> None:
    names, switches = _names(e.tokens), ("enable_chunked_prefill", "no_enable_chunked_prefill")
    tokens = r.number(*names)
    chunked = r.flag(switches[0], usual=True) and not r.flag(switches[1]) and (tokens is None or tokens > 0)
    r.say("chunked_prefill", tokens if chunked else 0, *names, *switches)


def _write_tokens(e: ServerFlags, w: Writing) -> None:
    at = w.subject.scheduler
    if at is None:
        _say(w, e.seqs, w.plan.micro_batch)
        return
    if at.chunked_prefill or not any(flag == e.tokens.split()[0] for flag, _ in e.traits.unchunked):
        _say(w, e.tokens, at.max_batched_tokens)
    w.flags += () if at.chunked_prefill else e.traits.unchunked


class _Share:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> float | None:
        share = r.real(*names)
        if share is not None and share <= 0:
            raise ParseError(f"{r.shown(names[0])}: {share:g}; give a share of the memory above 0")
        return share

    @staticmethod
    def write(value: Word, _: Words) -> tuple[Text, ...]:
        return (value,) if isinstance(value, int | float) else ()

    @staticmethod
    def write_all(value: Word, _: Words) -> tuple[Text, ...]:
        """Write nothing for the share that the engine takes of what is free."""
        return () if value == 1 else _Share.write(value, {})


class _Longest:
    @staticmethod
    def read(e: ServerFlags, r: Reading) -> None:
        if r.words.get("chunked_prefill") == 0:
            r.say("max_model_len", r.count(*_names(e.longest)), *_names(e.longest))
        else:
            r.understand("longest request; say --isl and --osl", *_names(e.longest))

    @staticmethod
    def write(e: ServerFlags, w: Writing) -> None:
        longest, plan = w.subject.longest, w.plan
        if longest is None and not w.subject.is_server:
            longest = plan.kv_len + 1 if w.family.workload is Workload.DECODE else plan.seq_len
        if longest is not None:
            _say(w, e.longest, longest)


class _Dtype:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> str | None:
        text = r.text(*names)
        known = {theirs: ours for ours, texts in _DTYPES.items() for theirs in texts.split()}
        return known.get(text, text) or None if text is not None else None


def _recipes(online: Mapping[str, str]) -> Codec:
    """Return the codec of the recipe of weights: a checkpoint's own where a launch names none."""
    known = choice(RECIPES)

    def read(r: Reading, names: Sequence[str]) -> Word:
        return known.read(r, names) or "as-published"

    return Codec(read, lambda value, _: (online[str(value)],) if value in online else ())


def _published(subject: ExportSubject) -> str:
    """Return what a model's weights were published in, as far as there is a recipe of it."""
    from ...frontend.huggingface.configs.published import published_precision

    if subject.config is None:
        return NONE
    try:
        return published_precision(subject.model)
    except SlipstickError as error:
        return str(error)


def _write_unsaid(w: Writing) -> None:
    plan, family = w.plan, w.family
    published = _published(w.subject) if family.precision == NONE else NONE
    w.lose(f"precision none: its checkpoint was published in {published}, and is loaded so", published != NONE)
    w.lose("sp: of its compiler passes (--compilation-config)", family.sp)
    for pattern, recipe in family.precision_of:
        w.lose(f"precision_of {pattern}={recipe}: as a checkpoint has it")
    factor = plan.capacity_factor
    w.lose(f"capacity_factor {factor or 0:g}: no row of an expert is left out", factor is not None)
    w.lose(_NO_CACHE_TYPE, family.kv_dtype == "int8")
    unfused = family.attention == "unfused" or family.mla == "expanded"
    w.lose("attention and mla: its kernels are fused, and run over cached latents", unfused)


def _read_speculation(r: Reading) -> None:
    """Read what drafts: vLLM's --speculative-config, TensorRT-LLM's speculative_config, SGLang's algorithm."""
    text = r.text("speculative_config")
    if text is not None:
        _read_draft_record(r, text)
    if (r.text("speculative_config.decoding_type") or "").lower() in ("mtp", "eagle", "eagle3"):
        names = ("speculative_config.num_nextn_predict_layers", "speculative_config.max_draft_len")
        r.say("mtp", r.count(*names), "speculative_config.decoding_type", *names)
    if r.text("method") in ("mtp", "eagle", "eagle3"):
        r.say("mtp", r.count("num_speculative_tokens"), "method", "num_speculative_tokens")
    steps = r.count("speculative_num_steps", "speculative_num_draft_tokens")
    algorithm = r.text("speculative_algorithm", "speculative_algo")
    if algorithm is not None and steps:
        chain = ("speculative_algorithm", "speculative_algo", "speculative_num_steps")
        r.say("ngram" if algorithm.upper() == "NGRAM" else "mtp", steps, *chain)
        if (r.count("speculative_eagle_topk") or 1) == 1:
            # A tree of drafts is left out.
            r.understand("drafts as a chain", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if "mtp" in r.words:
        r.words["acceptance"] = 0.8
        r.assume("acceptance 0.8: no launch says how many draft tokens are accepted")


def _read_draft_record(r: Reading, text: str) -> None:
    try:
        said = read_json(text, "--speculative-config")
    except ParseError:
        raise ParseError(f"--speculative-config: '{text[:60]}' is no JSON") from None
    number = said.get("num_speculative_tokens") if isinstance(said, dict) else None
    method = str(said.get("method", "")) if isinstance(said, dict) else ""
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise ParseError(f"--speculative-config: num_speculative_tokens {number}; give a whole number of 1 and more")
    if isinstance(number, int) and ("mtp" in method or "eagle" in method or "ngram" in method):
        r.say("ngram" if "ngram" in method else "mtp", number, "speculative_config")


def _left(e: ServerFlags, subject: ExportSubject) -> Iterator[str]:
    family = subject.family
    if subject.weights is None:
        yield "where the weights are: a name on the hub or a folder in place of the model"
    if family.precision not in (NONE, *e.traits.online) or family.published_of:
        yield f"precision {family.precision}: a checkpoint that was quantised so, whose config says how"
    if subject.plan.ep > 1 and family.exchange == "alltoall" and e.whole_experts:
        yield "--all2all-backend: how rows get to their experts; its own choice may gather all tokens"
    if not subject.is_server:
        yield "limits of the scheduler: the plan is of a step; a plan of --phase serve has them"
