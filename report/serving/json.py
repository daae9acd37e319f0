"""What a server makes of a load as JSON: raw SI numbers, the same bytes for the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from ...driver.uncertainty.answers import evidence_of_server, server_bands, server_ratio_bands
from ...ir import __version__
from ...ir.text.json_text import json_text
from ..cost.money import money_inputs, money_record
from ..explain.intervals import intervals_record
from ..explain.provenance import shares_of_server
from ..json_report import SCHEMA, assumed_record, inputs_of

if TYPE_CHECKING:
    from ...driver.serve.answer import ServeEstimate
    from ...driver.serve.pools import Pools

# Of the plan of a single step, what a server has no use for.
_OF_STEPS = frozenset(("mbs", "gbs", "seq", "num_micro_batches"))


def serving_json(answer: ServeEstimate, overrides: Sequence[str] = ()) -> str:
    """Return the report: schema, inputs, metrics, breakdown of a request, phases, memory, money, warnings.

    `breakdown` adds up to `e2el_s`; `phases` are one prompt by itself and a decode step at the mean context.
    """
    head = {"schema": SCHEMA, "tool_version": __version__, "units": "SI"}
    return json_text(head | serving_record(answer, overrides), indent=2)


def serving_record(answer: ServeEstimate, overrides: Sequence[str] = ()) -> dict[str, object]:
    """Return the same as a record, without its head."""
    metrics = {**answer.metrics, **({} if answer.money is None else answer.money.metrics)}
    report: dict[str, object] = {
        "inputs": _inputs(answer, overrides),
        **assumed_record(answer.server.system),
        "feasible": True,
        "metrics": metrics,
        "intervals": intervals_record(
            metrics, server_bands(answer), evidence_of_server(answer), server_ratio_bands(answer)
        ),
        "provenance": {str(basis): share for basis, share in shares_of_server(answer).items()},
        "breakdown": dict(answer.breakdown_s),
        "phases": {
            str(one.plan.family.workload): {
                "batch": one.plan.micro_batch,
                "seq": one.plan.seq_len,
                "kv": one.plan.kv_len,
                "metrics": dict(one.metrics),
                "breakdown": dict(one.breakdown_s),
            }
            for one in (answer.prefill, answer.decode)
        },
        **({} if answer.simulated is None else {"simulated": answer.simulated.to_bench_json()}),
        **({"autoscaling": scaling} if (scaling := scaling_record(answer)) else {}),
        "memory": {**answer.memory_bytes, "capacity": answer.server.system.chip.hbm_bytes},
        "warnings": list(answer.warnings),
    }
    if answer.money is not None:
        report["money"] = money_record(answer.money)
    return report


def scaling_record(answer: ServeEstimate) -> dict[str, object]:
    """Return the rule of autoscaling and its replicas over the seconds of the run; nothing where all are there."""
    rule = answer.server.autoscaling
    if rule is None or answer.simulated is None:
        return {}
    scaled = answer.simulated.scaled[0]
    begin_s = scaled.at_s[0]
    rows = zip(scaled.at_s, scaled.held, scaled.serving, strict=True)
    levels = [{"at_s": at_s - begin_s, "with_gpus": held, "serving": up} for at_s, held, up in rows]
    return {**asdict(rule), "span_s": scaled.span_s, "replicas": levels}


def _inputs(answer: ServeEstimate, overrides: Sequence[str]) -> Mapping[str, object]:
    inputs = dict(inputs_of(answer.decode, overrides))
    plan, system = inputs["plan"], inputs["system"]
    assert isinstance(plan, dict)
    assert isinstance(system, dict)
    engine, lengths, made = answer.server.engine, answer.lengths, answer.server.speculation
    prompt, output, cached = (float(np.asarray(n)) for n in (lengths.prompt, lengths.output, lengths.cached))
    inputs |= {
        "phase": "serve",
        "system": {**system, "num_gpus": answer.num_gpus},
        "plan": {key: value for key, value in plan.items() if key not in _OF_STEPS},
        **({} if answer.pools is None else {"pools": _pools(answer.pools)}),
        "engine": {
            "name": engine.name,
            "as_of": engine.as_of,
            **asdict(engine.scheduler),
            **asdict(engine.overheads),
            **dict(engine.tuned),
        },
        "requests": {"isl": prompt, "osl": output, "cached": cached, "shared": lengths.shared},
        **({} if made is None else {"speculation": {"length": made.length, "acceptance": made.acceptance}}),
        "load": {"kind": answer.load.name, **{k: v for k, v in answer.load.given.items() if v is not None}},
    }
    return inputs if answer.money is None else {**inputs, "money": money_inputs(answer.money)}


def _pools(pools: Pools) -> Mapping[str, object]:
    link = pools.link
    return {
        "prefill": {
            "workers": pools.prefill.num_replicas,
            "tp": pools.prefill.plan.tp,
            "pp": pools.prefill.plan.pp,
            "batch": pools.batch,
        },
        "decode": {"workers": pools.decode.num_replicas, "tp": pools.decode.plan.tp, "pp": pools.decode.plan.pp},
        "link": {"bytes_per_s": link.bytes_per_s, "latency_s": link.latency_s, "streamed": link.layers > 1},
    }
