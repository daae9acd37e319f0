"""Money, energy and carbon of what a system does: for a step, a token, a whole run, by the names that people use.

    usd_per_step   usd_per_gpu_hour n t/3600            usd_per_mtok   1e6 usd_per_step / tokens
    usd_run        usd_per_gpu_hour gpu_hours           kwh            machines and building, PUE in it
    tco2e          operational: kWh of the grid; embodied: that of making the machines, by the part of their life

n are the accelerators, t is the time of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...backends.prices.section import Prices
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .carbon import Embodied, operational_kg
from .ownership import Ownership

if TYPE_CHECKING:
    from .energy import StepEnergy

_J_PER_KWH = 3.6e6  # 1000 W over 3600 s


@dataclass(frozen=True, slots=True)
class SystemWork:
    """What is done on a system.

    Attributes:
        workload: whether tokens are trained, read or written.
        step_time_s: of one step, prefill or decode step.
        tokens: of one of these.
        model_flops: of one of these; None where nobody counts them.
        run_s: how long a whole run takes, with checkpoints and failures; None where there is none.
    """

    workload: Workload
    step_time_s: Num
    tokens: Num
    model_flops: Num | None = None
    run_s: Num | None = None

    @classmethod
    def of_step(cls, workload: Workload, metrics: Mapping[str, Num], run_s: Num | None = None) -> SystemWork:
        """Return the work of a step by its metrics."""
        time_s = metrics["step_time_s"]
        return cls(workload, time_s, metrics["tokens_per_s"] * time_s, metrics["model_flops"], run_s)


def money_metrics(
    work: SystemWork, owned: Ownership, energy: StepEnergy, made: Embodied, prices: Prices
) -> Mapping[str, Num]:
    """Return metrics of a system at work by name, in USD, J, kWh, tonnes.

    `usd_capex`, `usd_opex` and `usd_tco` are of the whole system over the life of its servers; `usd_run`, `kwh` and
    `tco2e` of a whole run, where there is one.
    """
    usd_per_gpu_hour = owned.usd_per_gpu_hour
    usd_per_step = usd_per_gpu_hour * owned.num_gpus * work.step_time_s / 3600.0
    # Tokens that are trained, read or written: each has a price of its own.
    names = {Workload.PREFILL: "usd_per_mtok_input", Workload.DECODE: "usd_per_mtok_output"}
    step_kg = operational_kg(energy.total_j, prices) + _made_kg(work.step_time_s, owned, made)
    found: dict[str, Num] = {
        "usd_capex": owned.capex_usd,
        "usd_opex": owned.opex_usd,
        "usd_tco": owned.tco_usd,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "usd_per_step": usd_per_step,
        names.get(work.workload, "usd_per_mtok"): 1e6 * usd_per_step / work.tokens,
        "tokens_per_usd": work.tokens / usd_per_step,
        "average_power_w": energy.average_w,
        "gpu_power_w": energy.gpu_w,
        "j_per_token": energy.machines_j / work.tokens,
        "j_per_token_facility": energy.total_j / work.tokens,
        "kg_co2e_per_mtok": 1e6 * step_kg / work.tokens,
    }
    # Tokens per second per dollar of capex; rented machines have none.
    capital = (
        {}
        if isinstance(owned.capex_usd, float) and owned.capex_usd == 0.0
        else {"tokens_per_s_per_usd_capex": work.tokens / work.step_time_s / owned.capex_usd}
    )
    return found | _flops(work, usd_per_step, energy) | capital | _run(work, owned, energy, made, prices)


def _made_kg(seconds: Num, owned: Ownership, made: Embodied) -> Num:
    """The part of what making the machines emitted that falls on so many seconds of their service."""
    return made.total_kg * (seconds / (owned.life_years * owned.hours * 3600.0))


def _flops(work: SystemWork, usd_per_step: Num, energy: StepEnergy) -> dict[str, Num]:
    if work.model_flops is None:
        return {}
    return {
        "model_flops_per_usd": work.model_flops / usd_per_step,
        "model_flop_per_s_per_w": work.model_flops / energy.machines_j,
    }


def _run(work: SystemWork, owned: Ownership, energy: StepEnergy, made: Embodied, prices: Prices) -> dict[str, Num]:
    """A whole run; while it waits or starts again it draws what it draws on average."""
    if work.run_s is None:
        return {}
    used_j = energy.total_j / energy.time_s * work.run_s
    operational = operational_kg(used_j, prices) / 1e3
    embodied = _made_kg(work.run_s, owned, made) / 1e3
    return {
        "usd_run": owned.usd_per_gpu_hour * owned.num_gpus * work.run_s / 3600.0,
        "kwh": used_j / _J_PER_KWH,
        "tco2e_operational": operational,
        "tco2e_embodied": embodied,
        "tco2e": operational + embodied,
    }
