"""The flags that verbs share, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar, get_type_hints

import click

from ..ir.errors import did_you_mean


class Named(click.Choice[str]):
    """A choice that answers a wrong word with the nearest right one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or fail with what was given, what is allowed and the nearest."""
        if value in self.choices:
            return value
        allowed = [str(c) for c in self.choices]
        self.fail(f"'{value}' is not allowed{did_you_mean(value, allowed)} allowed: {', '.join(allowed)}", param, ctx)


Command = TypeVar("Command", bound=Callable[..., int | None])

WORKLOADS = ("train", "prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, as typed; nothing is checked here that needs the model or the system."""

    model: str
    system: str | None
    gpus: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    dp: int | None
    vpp: int
    mbs: int
    gbs: int | None
    seq: int
    sp: bool | None
    zero: int
    recompute: str
    dtype: str
    grad_dtype: str
    phase: str
    tp_plan: str
    fuse: bool
    overrides: tuple[str, ...]
    flops_convention: str
    cache: bool
    quiet: bool
    passes: str | None
    stop_after: str | None
    dump_after: str | None
    dump_dir: str
    time_passes: bool


_MODEL = click.argument("model")
_OPTIONS = (
    click.option("--system", metavar="NAME|FILE", help="Machine: a name of `slipstick list systems`, or a YAML file."),
    click.option("--gpus", type=int, default=None, help="Number of GPUs. [default: tp x pp x cp x dp]"),
    click.option("--tp", "--tensor-model-parallel-size", type=int, default=1, show_default=True, help="Tensor-parallel degree."),
    click.option("--pp", "--pipeline-model-parallel-size", type=int, default=1, show_default=True, help="Pipeline stages."),
    click.option("--cp", "--context-parallel-size", type=int, default=1, show_default=True, help="Context-parallel degree."),
    click.option("--ep", "--expert-model-parallel-size", type=int, default=1, show_default=True, help="Expert-parallel degree."),
    click.option("--etp", "--expert-tensor-parallel-size", type=int, default=1, show_default=True, help="Tensor-parallel degree inside experts."),
    click.option("--dp", "--data-parallel-size", type=int, default=None, help="Data-parallel replicas. [default: gpus / (tp x pp x cp)]"),
    click.option("--vpp", type=int, default=1, show_default=True, help="Model chunks a pipeline stage (interleaving)."),
    click.option("--mbs", "--micro-batch-size", type=int, default=1, show_default=True, help="Sequences a replica runs at once."),
    click.option("--gbs", "--global-batch-size", type=int, default=None, help="Sequences a step. [default: mbs x dp]"),
    click.option("--seq", "--seq-length", type=int, default=2048, show_default=True, help="Tokens a sequence; in decode, tokens already in the KV cache."),
    click.option("--sp/--no-sp", default=None, help="Sequence parallelism. [default: on for training with tp > 1 where tp divides seq]"),
    click.option("--zero", type=click.IntRange(0, 3), default=0, show_default=True, help="ZeRO stage."),
    click.option("--recompute", type=Named(("none", "selective", "full")), default="none", show_default=True, help="Activation recomputation."),
    click.option("--dtype", default="bf16", show_default=True, help="Type of weights and activations: bf16, fp16, fp32."),
    click.option("--grad-dtype", default="fp32", show_default=True, help="Type in which gradients are summed and reduced."),
    click.option("--phase", type=Named(WORKLOADS), default="train", show_default=True, help="What is run."),
    click.option("--tp-plan", default="megatron", show_default=True, help="How layers are split: see `slipstick list tp-plans`."),
    click.option("--fuse/--no-fuse", default=True, help="Fuse pointwise chains into one kernel. [default: fuse]"),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of the system, e.g. chip.memory.hbm.bandwidth=4.8TB/s. Repeatable."),
    click.option("--flops-convention", type=Named(("full", "causal")), default="full", show_default=True, help="How masked attention counts in MFU."),
    click.option("--cache/--no-cache", default=True, help="Keep traced graphs in the user's cache folder. [default: cache]"),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    click.option("-p", "--passes", default=None, help="The pass pipeline to run instead of the default, as printed by --time-passes."),
    click.option("--stop-after", default=None, metavar="PASS", help="Stop lowering behind this pass."),
    click.option("--dump-after", default=None, metavar="PASS|all", help="Write the graph after this pass, or after each."),
    click.option("--dump-dir", default="dump", show_default=True, help="Where --dump-after writes."),
    click.option("--time-passes", is_flag=True, help="Print the pipeline and the time of each pass to stderr."),
)  # fmt: skip


def plan_options(command: Command) -> Callable[..., int | None]:
    """Give a command the MODEL argument and all flags; it receives them as one `request`."""

    @wraps(command)
    def wrapper(**given: object) -> int | None:
        names = set(get_type_hints(Request))
        mine = {k: v for k, v in given.items() if k in names}
        if mine["gpus"] is None:
            degrees = [mine[k] for k in ("tp", "pp", "cp")] + [mine["dp"] or 1]
            mine["gpus"] = _product(degrees)
        rest = {k: v for k, v in given.items() if k not in names}
        return command(request=Request(**mine), **rest)  # type: ignore[arg-type]

    made: Callable[..., int | None] = wrapper
    for option in reversed(_OPTIONS):
        made = option(made)
    return _MODEL(made)


def _product(degrees: list[object]) -> int:
    total = 1
    for d in degrees:
        total *= int(str(d))
    return total
