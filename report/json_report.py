"""An estimate as JSON: raw SI numbers, the same bytes for the same inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..backends.machine.system import System
from ..backends.network.topology.placement import placements_of, usual_placement
from ..cost.replicated import Replicated
from ..driver.estimate import Estimate
from ..driver.uncertainty.answers import evidence_of_step, ratio_bands, step_bands
from ..ir import __version__
from ..ir.plan.layout.ranks import BLOCKS
from ..ir.plan.plan import numbers_first
from ..ir.text.json_text import json_text
from ..ir.text.printer import print_graph
from ..ir.types import DType
from ..measured.match.planned import planned_record
from .advice import Advice, verdict
from .bounds import bound_seconds
from .cost.money import metrics_of, money_inputs, money_record
from .explain.intervals import intervals_record
from .explain.provenance import provenance_record
from .explain.sensitivity import sensitivity
from .explain.trust import trust_of_parts
from .nodes import planned_step
from .trace.costed import costed_rows
from .training_run import run_inputs, run_records

SCHEMA = "slipstick/report/1"


def report_json(
    answer: Estimate,
    overrides: Sequence[str] = (),
    with_sensitivity: bool = False,
    remedies: Sequence[Advice] = (),
) -> str:
    """Return the report: schema, inputs, metrics, intervals, breakdown, hidden communication, bounds, trust, memory.

    Of a plan that does not fit `verdict` says why, and `remedies` are changes that fit, the fastest first.

    A training run and money are there where they were asked for, elasticities on request. Breakdown, hidden
    communication and bounds are in seconds; `trust` says of each part how near such kernels came to measurements.
    `nodes` are all priced nodes, by which `slipstick compare --measured` knows kernels.
    """
    run = {} if answer.run is None else answer.run.metrics
    metrics = {**answer.metrics, **run, **metrics_of(answer.money)}
    report: dict[str, object] = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "units": "SI",
        "inputs": inputs_of(answer, overrides),
        **assumed_record(answer.table.system),
        "feasible": answer.fits,
        **({} if answer.fits else {"verdict": verdict(answer), "remedies": [one.record for one in remedies]}),
        "metrics": metrics,
        "intervals": intervals_record(
            metrics, step_bands(answer), evidence_of_step(answer.table), ratio_bands(answer.table)
        ),
        "provenance": provenance_record(answer),
        "breakdown": {**answer.breakdown_s},
        "hidden_comm": dict(answer.hidden_comm_s),
        "bounds": dict(bound_seconds(answer)),
        **({"elasticities": dict(sensitivity(answer))} if with_sensitivity else {}),
        "trust": _trust(answer),
        "memory": {**answer.memory_bytes, "capacity": answer.table.system.chip.hbm_bytes},
        "replicated_over_tp": None if answer.replicated is None else _replicated(answer.replicated),
        "warnings": list(answer.warnings),
    }
    if answer.run is not None:
        report["run"] = run_records(answer.run)
    if answer.money is not None:
        report["money"] = money_record(answer.money)
    chip, graph = answer.table.system.chip, answer.table.lowered.source
    report["roofline"] = {
        "chip": chip.name,
        "dtype": str(graph.dtype),
        "matmul_flop_per_s": float(chip.matmul_flop_per_s(str(graph.dtype))),
        "hbm_bytes_per_s": float(chip.hbm_bytes_per_s),
    }
    return _with_nodes(json_text(report, indent=2), _worked(planned_record(planned_step(answer)), answer))


def assumed_record(system: System) -> dict[str, object]:
    """Return the flags that nobody typed and that chose the software; nothing where it was named."""
    return {"assumed": list(system.assumed)} if system.assumed else {}


def _worked(nodes: dict[str, object], answer: Estimate) -> dict[str, object]:
    """Add to each node what one run of it works and moves, and what bounds it."""
    work = {
        row.node: {
            "tensor_flops": row.tensor_flops,
            "vector_flops": row.vector_flops,
            "num_bytes": row.num_bytes,
            "bound": row.bound,
        }
        for row in costed_rows(answer)
    }
    rows = nodes["rows"]
    assert isinstance(rows, list)
    return {**nodes, "rows": [{**row, **work.get(row["node"], {})} for row in rows]}


def _with_nodes(text: str, nodes: Mapping[str, object]) -> str:
    """Put the nodes behind the rest, a line each: they are many, and for programs."""
    rows = nodes["rows"]
    assert isinstance(rows, list)
    head = ",\n    ".join(f'"{name}": {json_text(nodes[name])}' for name in nodes if name != "rows")
    lines = ",\n".join(f"      {json_text(row)}" for row in rows)
    return text[: -len("\n}")] + f',\n  "nodes": {{\n    {head},\n    "rows": [\n{lines}\n    ]\n  }}\n}}'


def _replicated(found: Replicated) -> dict[str, object]:
    """What every rank of a tensor-parallel group holds and computes, as fractions of the model."""
    return {
        "parameter_bytes_share": found.bytes_share,
        "flops_share": found.flops_share,
        "parameters": dict(found.parameters),
        "modules": dict(found.modules),
    }


def _trust(answer: Estimate) -> dict[str, object]:
    """Errors as fractions, of each part of the breakdown."""
    parts = {
        name: {
            "median_ape": t.median,
            "p90_ape": t.p90,
            "rows": t.num_rows,
            "judged_share": t.judged,
            "on_chip_share": t.on_chip,
            "from": [" ".join((a.table, a.kind, a.library, a.chip)) for a in t.lines],
        }
        for name, t in trust_of_parts(answer).items()
    }
    return {"breakdown": parts}


def inputs_of(answer: Estimate, overrides: Sequence[str]) -> dict[str, object]:
    """Return what an estimate is of: model, system, plan, run and money, each as it was asked for."""
    graph, plan, system = answer.table.lowered.source, answer.plan, answer.table.system
    parameters = graph.num_parameters
    # Tell systems apart that have one name and other numbers, whatever their sources and prices say.
    numbers_sha256 = hashlib.sha256(repr(replace(system, sources=(), own_prices=None)).encode()).hexdigest()
    return {
        "model": {
            "name": graph.name,
            "num_parameters": int(str(parameters)) if not parameters.symbols else str(parameters),
            "graph_sha256": hashlib.sha256(print_graph(graph).encode()).hexdigest(),
        },
        "phase": str(graph.workload),
        "dtype": str(graph.dtype),
        "system": {
            "name": system.name,
            "stack": system.stack.name,
            "overrides": list(overrides),
            "num_gpus": plan.num_gpus,
            "chip": system.chip.name,
            "calibration": system.kernels.name,
            "cuda_graph": system.stack.cuda_graph,
            "numbers_sha256": numbers_sha256,
        },
        "plan": plan_inputs(answer),
        "flops_convention": str(answer.table.convention),
        **({} if answer.run is None else {"run": run_inputs(answer.run)}),
        **({} if answer.money is None else {"money": money_inputs(answer.money)}),
    }


def plan_inputs(answer: Estimate) -> dict[str, object]:
    """Return a plan as words and what they make: replicas, micro-batches, layers of stages, recipes of a checkpoint."""
    plan, family, levels = answer.plan, answer.plan.family, answer.table.system.levels
    made: dict[str, object] = {
        **{name: getattr(plan, name) for name in ("dp", "etp", "num_micro_batches")},
        "cp_method": family.cp,
        "tp_plan": family.tp_plan,
        "placement": usual_placement(family.placement, levels) if BLOCKS in placements_of(levels) else family.placement,
        "layers_by_stage": str(answer.table.staging.layouts[0]),
        "precision_of": (*family.published_of, *family.precision_of),
    }
    words = plan.words
    said = {row.name: getattr(words, row.field) for row in numbers_first() if row.name not in ("phase", "gpus")}
    return {name: _plain(value) for name, value in {**said, **made}.items()}


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, DType) else value
