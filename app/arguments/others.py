"""Words of single verbs."""

# fmt: off
from pathlib import Path
from typing import Annotated, Literal

from ...ir.records import dataclass
from .options import Opt, Pairs


@dataclass(frozen=True, kw_only=True)
class StepArgs:
    """What is said of a step beside its plan."""

    sensitivity: Annotated[bool | None, Opt(
        "Sensitivity of the step time to each number of the machine; takes tens of milliseconds.  [default: in "
        "tables]",
    )] = None


@dataclass(frozen=True, kw_only=True)
class StrictArgs:
    """What an answer may rest on."""

    strict: Annotated[float | None, Opt(
        "Refuse the answer, with exit code 5, where more than this share of its time rests on guesses.",
        least=0.0, most=1.0, metavar="SHARE",
    )] = None


@dataclass(frozen=True, kw_only=True)
class TraceArgs:
    """What is traced, and on which machine its operators are priced."""

    phase: Annotated[Literal["train", "prefill", "decode"], Opt(
        "Phase: a training step, a prompt, or one more token.",
    )] = "train"
    dtype: Annotated[str, Opt("Data type of weights and activations: bf16, fp16, fp32.")] = "bf16"
    batch: Annotated[int, Opt("Number of sequences.", least=1)] = 1
    seq: Annotated[int, Opt("Sequence length in tokens; in decode, tokens in the KV cache.", least=1)] = 2048
    coverage: Annotated[bool, Opt("Show how each op is priced on --system, and how well that is checked.")] = False
    system: Annotated[str | Path, Opt("Machine of --coverage.", metavar="NAME|FILE")] = "dgx-h100"
    stack: Annotated[str | Path | None, Opt("Software on it.  [default: the system's]", metavar="NAME|FILE")] = None
    dim: Annotated[Pairs, Opt(
        "Meaning of a named dim of an ONNX or .pt2 file: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a "
        "number. Repeatable; common names are known.",
        name="dims", metavar="NAME=SIZE",
    )] = ()
    allow_unpriced: Annotated[bool, Opt(
        "Count operators that have no rule by the bytes they read and write, instead of refusing the model.",
    )] = False
    cache: Annotated[bool, Opt("Keep traced graphs in the user's cache.")] = True


@dataclass(frozen=True, kw_only=True)
class CostArgs:
    """What is priced."""

    gpus: Annotated[int | None, Opt(
        "Accelerators.  [default: those of one server, or of one rack where racks are sold full]",
        least=1, metavar="N",
    )] = None
    breakdown: Annotated[Literal["summary", "die", "package", "system", "tco", "carbon"], Opt(
        "What to break down: dies, one package, the purchase, a year of ownership, or carbon.",
        name="view",
    )] = "summary"
    prices: Annotated[str | Path | None, Opt(
        "A profile of `slipstick list prices`, or a YAML file; of several systems `all`.",
        metavar="NAME|FILE",
    )] = None
    set: Annotated[Pairs, Opt(
        "Override a number of the system or its prices, e.g. prices.nodes.N5.wafer_price=13400USD. Repeatable.",
        name="overrides", metavar="KEY=VALUE",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class ExportArgs:
    """Target framework of an export."""

    to: Annotated[
        Literal[
            "megatron", "megatron-bridge", "torchtitan", "deepspeed", "vllm", "sglang", "tensorrt-llm", "kubernetes",
            "dynamo", "llm-d",
        ],
        Opt("Target framework.", name="framework"),
    ]
