"""Servers that draft: a small model, heads of the model itself, or a look-up makes tokens that one step checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Engine
from ...backends.machine.system import System
from ...cost.memory.states import held_parameters
from ...cost.serving.batching.speculative import Drafter, Speculation, speculate
from ...ir.layers import num_layers as layers_of
from ...ir.plan import Plan, PlanTable
from .server import Server
from .tables import ServedModel


def drafting(server: Server, speculation: Speculation) -> Server:
    """Return a server whose decode steps are rounds of a draft and its check; a draft of no tokens changes nothing."""
    if speculation.length == 0:
        return server
    free = replace(speculation, drafter=Drafter(weight_bytes=speculation.drafter.weight_bytes))
    made = speculate(server.times, server.engine, speculation)
    return replace(
        server,
        times=made.times,
        engine=made.engine,
        speculation=speculation,
        checking=speculate(server.times, server.engine, free).times,
    )


def draft_model(served: ServedModel, system: System, plan: Plan, engine: Engine, longest: int) -> Drafter:
    """Return a small model on the devices of the large one; UsageError for requests beyond its positions."""
    own = Server.of(served, system, plan, engine, longest)
    return Drafter(times=own.times, weight_bytes=own.phase(served.decode, 1.0, 1.0, 1.0).memory_bytes["weights"])


def prediction_head(server: Server) -> Drafter:
    """Return a head of the model itself, as those of multi-token prediction: one more layer, and the products behind.

    It has the weights of the last layer, in their types; the embedding and the products behind are the model's own.
    Source of the form: DeepSeek-V3, arXiv 2412.19437, section 2.2.
    """
    return Drafter(share=1.0 / num_layers(server.served), weight_bytes=last_layer_bytes(server))


def last_layer_bytes(server: Server) -> float:
    """Return the bytes of weights that a rank holds of the last layer of the model, as lowered."""
    graph = server.served.decode.graph
    held = [h for h in held_parameters(graph) if h.each_layer]
    names = [name for run in graph.schedule for name in run.regions if any(name in h.regions for h in held)]
    columns = PlanTable.of([server.plan]).columns
    sizes = (h.states[0].evaluate(columns) for h in held if h.regions[-1] == names[-1])
    return float(sum(np.ravel(np.asarray(size))[0] for size in sizes))


def num_layers(served: ServedModel) -> int:
    """Return the layers of a model; one where none are found."""
    return max(layers_of(served.decode.source), 1)
