"""The flags that verbs share, by subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType

import click

from ...ir.plan.word import PAIRS, PlanWord
from ...ir.plan.words import WORDS
from .names import of_catalogue
from .numbers import Named, One, Real, Tokens, Whole
from .run import RUN_FLAGS
from .talk import talk_flags


def _number(*names: str, help: str, default: int | None = None) -> click.Option:
    return click.Option(names, type=Whole(), metavar="N", default=default, show_default=True, help=help)


def _text(
    *names: str, help: str, default: str | None = None, metavar: str = "TEXT", kind: str | None = None
) -> click.Option:
    completed = None if kind is None else of_catalogue(kind)
    return click.Option(names, metavar=metavar, default=default, show_default=True, help=help, shell_complete=completed)


def _word(name: str, words: tuple[str, ...], help: str, metavar: str | None = None) -> click.Option:
    return click.Option([name], type=Named(words), default=words[0], show_default=True, metavar=metavar, help=help)


MODEL = click.Argument(["model"], shell_complete=of_catalogue("models"))


def _listed(*names: str, metavar: str, help: str) -> click.Option:
    return click.Option(names, multiple=True, metavar=metavar, help=help)


# What a factory (file.py:function) does not say itself; every command that takes such a model has these.
DESCRIBING = (
    _listed(
        "--input",
        "inputs",
        metavar="NAME:DTYPE[DIM,..]",
        help="Input of a factory's module, e.g. ids:int64[batch,seq] or image:bf16[batch,3,224,224]; dims are "
        "batch, seq, kv or numbers, the default type is the model's. Repeatable.  [default: what the "
        "factory says, else token ids]",
    ),
    click.Option(
        ["--loss", "loss"],
        metavar="FILE:FUNCTION",
        help="Function that computes the loss from the outputs of a factory's module.  [default: a scalar called "
        "loss, else "
        "cross-entropy of logits, else the sum of all real outputs]",
    ),
    _listed(
        "--fixed",
        "fixed",
        metavar="SIZE=N",
        help="Trace a factory's module with this size as a constant, e.g. seq=2048. Repeatable.",
    ),
    _listed(
        "--leaf",
        "leaves",
        metavar="CLASS=KIND(..)",
        help="Treat a module class that tracing cannot record as one known operator: experts(top_k=2), "
        "attention(causal=true,layout=bshd) or recurrence(kind=delta). Repeatable.",
    ),
    _listed(
        "--kv-cache",
        "caches",
        metavar="NAME",
        help="An --input of a factory's module that is a KV cache, in decode. Repeatable.",
    ),
)
# What is loaded, of any verb that loads a model.
_IMAGES = _number(
    "--images",
    default=0,
    help="Images per sequence of a vision-language model, encoder included; 0: the language model alone.",
)
_DIMS = click.Option(
    ["--dim", "dims"],
    multiple=True,
    metavar="NAME=SIZE",
    help="Meaning of a named dim of an ONNX or .pt2 file: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a "
    "number. Repeatable; common names are known.",
)
_DTYPE = _text("--dtype", default="bf16", help="Data type of weights and activations: bf16, fp16, fp32.")


def option_of(row: PlanWord) -> click.Option:
    """Return the flag of a word of plans."""
    word = row.word
    flags = [f"--{row.name.replace('_', '-')}", *word.also]
    told = row.unsaid if word.is_told else None
    if row.kind is bool:
        if word.one_way:
            return click.Option(flags, is_flag=True, help=word.help)
        both_ways = [f"{flag}/--no-{flag[2:]}" for flag in flags]
        return click.Option(both_ways, default=told, show_default=told is True, help=word.help)
    if row.kind == PAIRS:
        return click.Option(flags, multiple=True, metavar=word.metavar, help=word.help)
    named = Named(word.choices) if word.choices and not word.others else None
    kind, metavar = (Tokens(), "N") if row.name == "seq" else _KINDS.get(row.kind, (str, "TEXT"))
    shown = word.metavar or (None if named else metavar)
    return click.Option(flags, type=named or kind, metavar=shown, default=told, show_default=True, help=word.help)


_KINDS: Mapping[object, tuple[One | Real, str]] = MappingProxyType({int: (One(), "N"), float: (Real(), "X")})
_BETWEEN: Mapping[str, tuple[click.Option, ...]] = MappingProxyType(
    {"seq": (_IMAGES, _DIMS, *DESCRIBING), "gbs": (_DTYPE,)}
)


def _worded(section: str) -> Iterator[click.Option]:
    """Yield the flags of a section: words of plans, and what is loaded between them."""
    for name, row in WORDS.items():
        if row.word.section == section:
            yield option_of(row)
            yield from _BETWEEN.get(name, ())


YEAR = click.Option(
    ["--year"],
    type=Whole(min=2020),
    metavar="YEAR",
    help="Limits and prices of this year, as of --prices market@2027.  [default: each as of its own date]",
)
_MACHINE = (
    _text(
        "--system",
        metavar="NAME|FILE",
        help="A name of `slipstick list systems`, or a YAML file (required).",
        kind="systems",
    ),
    _text(
        "--stack",
        kind="stacks",
        metavar="NAME|FILE",
        help="Software stack: a name of `slipstick list stacks` or a YAML file. Overheads, host time, overlap, "
        "kernels, allocator reserve; vllm@0.6 or vllm@2024-06 for an older version; none for the pure machine.  "
        "[default: what usually runs such plans on such chips]",
    ),
    _text(
        "--as-of",
        metavar="DATE",
        help="Use software versions of this date: a year, month or day, e.g. 2024-06.  [default: as of today]",
    ),
    _text(
        "--calibration",
        kind="calibration",
        metavar="NAME|FILE",
        help="Constants of the kernels: a name of the catalogue, a YAML file that `slipstick calibrate` wrote, or "
        "'default' for those that are not specific to a chip.  [default: the chip's]",
    ),
    _text(
        "--prices",
        kind="prices",
        metavar="NAME|FILE",
        help="Price book: a profile of `slipstick list prices`, or a YAML file of differences from the usual one.  "
        "[default: the system's, else the usual]",
    ),
    YEAR,
    click.Option(
        ["--cuda-graph/--no-cuda-graph"],
        default=None,
        help="Launch kernels from captured CUDA graphs: no launch gaps on the host.  [default: the stack's]",
    ),
    click.Option(
        ["--set", "overrides"],
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a number of the system or its prices, e.g. chip.memory.hbm.bandwidth=4.8TB/s, "
        "prices.nodes.N5.wafer_price=13400USD. Repeatable.",
    ),
)
MONEY = (
    _word(
        "--basis",
        ("market", "build"),
        "market: list prices of what is sold; build: bottom-up from dies, packages and parts.",
    ),
    click.Option(["--rent/--own"], default=False, help="Rent by the hour at a cloud's price.  [default: own]"),
)
_COMPILER = (
    *_worded("Compiler"),
    _text("-p", "--passes", help="The pass pipeline to run instead of the default, as printed by --time-passes."),
    _text("--stop-after", metavar="PASS", help="Stop lowering after this pass."),
    _text("--dump-after", metavar="PASS|all", help="Write the graph after this pass, or after each."),
    _text("--dump-dir", default="dump", metavar="DIR", help="Where --dump-after writes."),
    click.Option(["--time-passes"], is_flag=True, help="Print the pipeline and the time of each pass to stderr."),
)
_OTHER = (
    click.Option(
        ["--allow-unpriced"],
        is_flag=True,
        help="Price operators without a rule by the bytes that they move, and list them, instead of refusing the "
        "model.",
    ),
    _word(
        "--flops-convention",
        ("full", "causal"),
        "Attention FLOPs in MFU: of all pairs (full) or of unmasked pairs (causal).",
    ),
    click.Option(
        ["--cache/--no-cache"], default=True, show_default=True, help="Keep traced graphs in the user's cache folder."
    ),
    *talk_flags(),
)

SECTIONS: Mapping[str, tuple[click.Option, ...]] = MappingProxyType(
    {
        "Workload": tuple(_worded("Workload")),
        "Plan": tuple(_worded("Plan")),
        "Machine": _MACHINE,
        "Training run": RUN_FLAGS,
        "Money": MONEY,
        "Compiler": _COMPILER,
        "Other": _OTHER,
    }
)

# Sections whose flags say what is estimated; the others say how a run is made and watched.
_SAID = ("Workload", "Plan", "Machine", "Training run", "Money")
_OTHERS = (*WORDS, "allow_unpriced", "flops_convention")


def words_of(more: Sequence[tuple[str, Sequence[click.Option]]]) -> Mapping[str, click.Parameter]:
    """Return the flags that a plan file may stand for, by their keys: those that verbs share, and of servers."""
    shared = [flag for name in _SAID for flag in SECTIONS[name]]
    others = [flag for section in SECTIONS.values() for flag in section if flag_name(flag) in _OTHERS]
    served = [flag for _, section in more for flag in section]
    return {flag_name(p): p for p in (MODEL, *shared, *others, *served)}


def flag_name(param: click.Parameter) -> str:
    """Return the key of a parameter: the first long name of its flag that Python takes as a name, as in `dp_shard`."""
    long = [name for name in param.opts if name.startswith("--") and not iskeyword(name.lstrip("-"))]
    return (long or param.opts)[0].lstrip("-").replace("-", "_")


def takes_list(flag: click.Parameter) -> bool:
    """Whether a flag takes words separated by commas, which a file may write as a list."""
    return "LIST" in str(flag.metavar)


def systems_named(text: str) -> tuple[str, ...]:
    """Return the systems of a list with commas; `all` is all of the catalogue.

    >>> systems_named("dgx-h100, mine.yaml")
    ('dgx-h100', 'mine.yaml')
    """
    from ...backends.machine.files.catalogue import names

    if text.strip() == "all":
        return names("systems")
    return tuple(dict.fromkeys(one for one in map(str.strip, text.split(",")) if one))
