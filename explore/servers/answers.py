"""A row of a search of servers into the whole answer, and into the command that gives it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from ...driver.serve.answer import ServeEstimate
from ...driver.serve.drafts import num_layers
from ...driver.serve.load import Load
from ...driver.serve.money import worth_serving
from ...driver.serve.pools import Pools, link_of
from ...driver.serve.serve import serve
from ...driver.serve.serve_pools import serve_pools
from ...driver.serve.server import Server, replicated
from ...ir.errors import UsageError
from ..machine import MachineChoice
from .job import ServingJob
from .servers import RefusedServer, Servers
from .space import ServerSetting
from .units import Unit

Row = Mapping[str, float]
# What columns of workers of prompts begin with.
PROMPTS = "prefill_"


def answer_of(job: ServingJob, row: Row) -> ServeEstimate:
    """Return the whole answer for a row: what it says, where the time goes, memory, warnings, money.

    The requests in flight are those of the row; what is asked of latencies says how many requests/s meet it.
    """
    made, space = job.servers, job.space
    setting, load = space.setting_of(row), Load(concurrency=row["concurrency"])
    own = _server(made, setting, unit_of(row), int(row["dp"]))
    if not setting.apart:
        return _priced(job, serve(own, space.lengths, load, space.target))
    first = _server(made, setting, unit_of(row, PROMPTS), int(row["prefill_dp"]))
    layers = num_layers(own.served) if space.stream_kv else 1
    link = link_of(own.system, first.plan.num_gpus + own.plan.num_gpus, layers, space.kv_bytes_per_s)
    pools = Pools(first, own, link, int(row["prefill_batch"]))
    return _priced(job, serve_pools(pools, space.lengths, load, space.target))


def unit_of(row: Row, of: str = "") -> Unit:
    """Return the unit of a row; of `prefill_` that of workers of prompts."""
    tp, pp, etp, dp = (int(row[f"{of}{name}"]) for name in ("tp", "pp", "etp", "dp"))
    ep, cp = int(row["ep"]), int(row["cp"])
    return Unit(tp * pp * cp, tp, pp, ep, etp, dp if ep > 1 or etp > tp else 0, cp)


def _server(servers: Servers, setting: ServerSetting, unit: Unit, dp: int) -> Server:
    made = servers.server(setting, unit)
    if isinstance(made, RefusedServer):
        raise UsageError(f"no row of this search: {made.message}")
    return made if unit.dp else replicated(made, dp)


def _priced(job: ServingJob, answer: ServeEstimate) -> ServeEstimate:
    try:
        return worth_serving(answer, job.space.terms)
    except UsageError:
        return answer


def command_of(job: ServingJob, row: Row) -> str:
    """Return the command line that estimates a row."""
    return shlex.join(["slipstick", "estimate", job.space.model, "--phase", "serve", *_flags(job, row)])


def _flags(job: ServingJob, row: Row) -> Iterator[str]:
    space, setting = job.space, job.space.setting_of(row)
    yield from _of_machine(setting.machine)
    yield from ("--engine", setting.engine)
    for text in space.engine_overrides:
        yield from ("--set", f"engine.{text}")
    yield from _of_plan(row)
    yield from ("--isl", str(space.prompt), "--osl", str(space.output), "--concurrency", _typed(row["concurrency"]))
    yield from _said("--cached", space.cached, 0)
    yield from ["--shared-prefix"] if space.shared_prefix else []
    for flag, seconds in (("--ttft", space.ttft_s), ("--tpot", space.tpot_s)):
        yield from [] if seconds is None else (flag, f"{_typed(seconds)}s")
    yield from _said("--chunked-prefill", setting.max_batched_tokens, None)
    yield from _said("--max-num-seqs", space.max_num_seqs, None)
    yield from _said("--block-size", space.block_tokens, None)
    yield from _said("--memory-utilization", space.memory_utilization, None)
    yield from ["--dual-batch"] if space.dual_batch else []
    yield from _said("--dtype", space.dtype, "bf16")
    yield from _said("--kernels", space.kernels, None)
    yield from _said("--precision", setting.precision, "none")
    yield from _said("--kv-dtype", setting.kv_dtype, "same")
    yield from _said("--mla", space.mla, "latent")
    if row["ep"] > 1:
        yield from _said("--ep-exchange", space.exchange, "alltoall")
        yield from _said("--expert-popularity", space.expert_popularity, "")
        yield from ["--eplb"] if space.eplb else []
        yield from _said("--redundant-experts", space.redundant_experts, 0)
    yield from _said("--basis", space.basis, "market")
    yield from ["--rent"] if space.rented else []
    yield from _said("--flops-convention", space.convention, "full")
    if setting.apart:
        yield from ["--stream-kv"] if space.stream_kv else []
        yield from [] if space.kv_bytes_per_s is None else ("--kv-bandwidth", f"{_typed(space.kv_bytes_per_s)}B/s")


def _of_machine(machine: MachineChoice) -> Iterator[str]:
    yield from ("--system", machine.name)
    for text in machine.overrides:
        yield from ("--set", text)
    for flag, word in (
        ("--stack", machine.stack),
        ("--calibration", machine.calibration),
        ("--prices", machine.prices),
    ):
        yield from _said(flag, word, None)


def _of_plan(row: Row) -> Iterator[str]:
    unit = unit_of(row)
    if row["apart"]:
        yield from ("--disagg", f"{int(row['prefill_dp'])}:{int(row['dp'])}")
    else:
        yield from ("--gpus", str(int(row["gpus"])))
    yield from _said("--tp", unit.tp, 1)
    yield from _said("--pp", unit.pp, 1)
    yield from _said("--cp", unit.cp, 1)
    if row["apart"]:
        yield from _said("--prefill-tp", int(row["prefill_tp"]), unit.tp)
        yield from _said("--prefill-pp", int(row["prefill_pp"]), unit.pp)
        yield from _said("--prefill-batch", int(row["prefill_batch"]), 1)
    yield from _said("--ep", unit.ep, 1)
    if unit.whole or unit.spread or (row["apart"] and unit_of(row, PROMPTS).whole):
        yield from ("--etp", str(unit.etp))


def _typed(number: float) -> str:
    """A number as people type it, with all its digits.

    >>> _typed(132.0), _typed(0.03)
    ('132', '0.03')
    """
    return str(int(number)) if number == int(number) else repr(number)


def _said(flag: str, value: str | float | None, usual: str | float | None) -> list[str]:
    """A flag with its value, where that is not the usual one."""
    return [] if value is None or value == usual else [flag, str(value)]
