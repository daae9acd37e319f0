"""What the flags that verbs share say together: one `Request` a command."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import click

from ..ir.errors import UsageError
from .flags import MODEL, SECTIONS
from .plan_file import add_listed, plan_file_flag

PLAN_FILE = plan_file_flag()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, as typed; nothing is checked here that needs the model or the system."""

    model: str
    system: str | None
    stack: str | None
    calibration: str | None
    prices: str | None
    cuda_graph: bool | None
    gpus: int | None
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int | None
    capacity_factor: float | None
    expert_imbalance: float
    ep_exchange: str
    dispatch_dtype: str
    routing_nodes: int
    dp: int | None
    vpp: int
    schedule: str
    pp_layout: str
    scatter_p2p: bool | None
    order: str
    mbs: int
    gbs: int | None
    seq: int
    images: int
    dims: tuple[str, ...]
    inputs: tuple[str, ...]
    loss: str | None
    fixed: tuple[str, ...]
    leaves: tuple[str, ...]
    caches: tuple[str, ...]
    sp: bool | None
    zero: int
    dp_shard: int | None
    reshard: str
    recompute: str
    recompute_modules: str | None
    recompute_layers: int | None
    recompute_every: int | None
    early_stop: bool
    offload: str | None
    kernels: str | None
    attention: str
    mla: str
    precision: str
    precision_of: tuple[str, ...]
    kv_dtype: str
    fp8_param_gather: bool
    bf16_first: int
    bf16_last: int
    cp_method: str
    cp_ulysses: int
    dtype: str
    grad_dtype: str
    reduce_dtype: str | None
    main_params_dtype: str
    exp_avg_dtype: str
    exp_avg_sq_dtype: str
    phase: str
    tp_plan: str
    replicate_unknown: bool
    async_tp: bool
    fuse: bool
    overrides: tuple[str, ...]
    tokens: str | None
    samples: str | None
    steps: str | None
    checkpoint_every: str | None
    checkpoint_bandwidth: str | None
    checkpoint_node_bandwidth: str | None
    checkpoint_bytes: str | None
    checkpoint_stall: str | None
    checkpoint_async: bool | None
    mtbf: str | None
    restart_time: str | None
    basis: str
    rent: bool
    allow_unpriced: bool
    flops_convention: str
    cache: bool
    quiet: bool
    passes: str | None
    stop_after: str | None
    dump_after: str | None
    dump_dir: str
    time_passes: bool

    @property
    def num_gpus(self) -> int:
        """The GPUs asked for, or as many as the degrees need."""
        return self.tp * self.pp * self.cp * (self.dp or 1) if self.gpus is None else self.gpus


class PlanCommand(click.Command):
    """A verb that takes MODEL, a plan file and all shared flags; its function receives them as one `request`.

    A subclass may have more sections of flags of its own.
    """

    serves: ClassVar[bool] = False
    more: ClassVar[tuple[tuple[str, tuple[click.Option, ...]], ...]] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the shared parameters, then the verb's own."""
        shared = [flag for section in SECTIONS.values() for flag in section]
        own = [flag for _, flags in self.more for flag in flags]
        return [MODEL, PLAN_FILE, *shared, *own, *super().get_params(ctx)]

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        add_listed(ctx)
        request = Request(**{f.name: ctx.params.pop(f.name) for f in fields(Request)})
        if request.phase == "serve" and not self.serves:
            told = (
                "a server runs two graphs: ask for train, prefill or decode; `slipstick estimate` answers for servers"
            )
            raise UsageError(f"--phase serve: {told}")
        ctx.params["request"] = request
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verb's own options first, then the shared ones by subject."""
        self._write(ctx, formatter, "Options", [PLAN_FILE, *super().get_params(ctx)])
        for title, own in self.more:
            self._write(ctx, formatter, title, list(own))
        for title, flags in SECTIONS.items():
            self._write(ctx, formatter, title, list(flags))

    def _write(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, params: list[click.Parameter]
    ) -> None:
        with formatter.section(title):
            formatter.write_dl([line for p in params if (line := p.get_help_record(ctx)) is not None])
