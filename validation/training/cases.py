"""A row of a table of training steps as a case: what is run, on what, and how long it took."""

from __future__ import annotations

from ...backends.machine.system import System
from ...frontend import config_of
from ...ir.plan import Plan
from ...ir.records import dataclass
from ...ir.types import DType
from ..plans import dtype_of, plan_of, stack_of
from ..rows.models import architecture
from ..rows.publications import reason
from ..rows.rows import NotJudged, Row
from ..rows.words import CaseModel, overrides_of, system_of
from .machine_shop import MachineShop

# The measured time of a step: given, or from a rate under the convention of its source.

# Recomputing the forward phase of the layers adds a third to the FLOPs of forward and backward.
AGAIN = 4.0 / 3.0


def step_s(row: Row, peak_flop_per_s: float) -> float:
    """Return the seconds of a step; NotJudged where nothing of a row gives them.

    In this order: the step itself, a step that was derived for the table, tokens or samples a second, model FLOP/s,
    FLOP/s with recomputation, MFU, HFU. `peak_flop_per_s` is the dense peak of 16-bit products, which every source of
    an MFU divides by.
    """
    given = row.measured("step_time_s") or row.measured("step_time_s_derived")
    if given is not None:
        return given
    rate = row.measured("tokens_per_s_per_gpu")
    rates = (
        (None if rate is None else _tokens(row) / (rate * row.number("n_gpus"))),
        _by_samples(row),
        _by_flops(row, peak_flop_per_s),
    )
    found = next((seconds for seconds in rates if seconds is not None), None)
    if found is None:
        raise NotJudged("it gives no time, no rate and no utilisation of a step")
    return found


def model_flops(row: Row) -> float:
    """Return the FLOPs of one step, forward and backward, attention over the full square of the sequence.

    6 x (tokens) x (weights of products + 2 layers x seq x heads x head_dim): for a GPT with an MLP of four times the
    hidden size 72 B s l h^2 (1 + s / 6h + V / 12 l h), as in arXiv 2104.04473 and 2205.05198.
    """
    return _tokens(row) * 6.0 * (_layer_weights(row) * row.number("layers") + _head(row) + _scores(row))


def hardware_flops(row: Row) -> float:
    """Return the same with the forward phase of every layer run twice: 96 B s l h^2 (1 + s / 6h + V / 16 l h)."""
    again = AGAIN if row.text("activation_recompute").startswith("full") else 1.0
    layers = _layer_weights(row) * row.number("layers") + _scores(row)
    return _tokens(row) * 6.0 * (again * layers + _head(row))


def _by_samples(row: Row) -> float | None:
    rate = row.measured("samples_per_s")
    return None if rate is None else row.number("global_batch") / rate


def _by_flops(row: Row, peak_flop_per_s: float) -> float | None:
    gpus = row.number("n_gpus")
    for column, unit, flops in (
        ("model_tflops_per_gpu", 1e12, model_flops),
        ("hw_tflops_per_gpu", 1e12, hardware_flops),
        ("mfu_pct", peak_flop_per_s / 100.0, model_flops),
        ("hfu_pct", peak_flop_per_s / 100.0, hardware_flops),
    ):
        rate = row.measured(column)
        if rate is not None:
            return flops(row) / (rate * unit * gpus)
    return None


def _tokens(row: Row) -> float:
    return float(row.number("global_batch") * row.number("seq_len"))


def _layer_weights(row: Row) -> float:
    hidden, heads = row.number("hidden"), row.number("heads")
    head_dim = row.number("head_dim", hidden // heads)
    attention = 2 * hidden * head_dim * (heads + row.number("kv_heads", heads))
    matrices = 2 if row.text("family") in ("gpt", "mpt") and not row.flag("swiglu") else 3
    return float(attention + matrices * hidden * row.number("ffn_hidden", 4 * hidden))


def _head(row: Row) -> float:
    return float(row.number("hidden") * row.number("vocab"))


def _scores(row: Row) -> float:
    """Products of queries with keys and of scores with values: 2 x seq x width a token, as weights count."""
    heads = row.number("heads")
    width = heads * row.number("head_dim", row.number("hidden") // heads)
    return 2.0 * row.number("layers") * row.number("seq_len") * width


# The state of the network that a run recorded, as what its stack adds to messages.

# An all-reduce over a healthy network of one 400 Gbit/s port a GPU: eight ports of a node at 22 GB/s each.
HEALTHY_BUS_BYTES_PER_S = 8 * 22e9
# The same as a setting of the machine, whose ports reach nine tenths of what is said of them.
HEALTHY_PORTS = ("network.infiniband.bandwidth=24.4GB/s",)
# Bytes of the message that was timed: with them the bandwidths recorded at 32 to 512 GPUs, which halve with each
# doubling, are one latency a step of the ring.
TIMED_BYTES = 2.7e9


@dataclass(frozen=True, slots=True)
class ReachedBandwidth:
    """Bus bandwidth that an all-reduce over all GPUs reached in the run itself."""

    world_bus_bytes_per_s: float

    def step_latency_s(self, num_gpus: int) -> float:
        """Return what each step of a collective takes more than on a healthy network.

        S (1/B - 1/B0) / n: the loss of bandwidth over n ranks as a latency of the n - 1 steps of the ring.
        """
        lost = 1.0 / self.world_bus_bytes_per_s - 1.0 / HEALTHY_BUS_BYTES_PER_S
        return max(0.0, TIMED_BYTES * lost / num_gpus)


def network_state(row: Row) -> ReachedBandwidth | None:
    """Read the all-reduce bandwidth that a run measured before it trained; None where it did not."""
    found = row.measured("world_bus_gb_per_s")
    return None if found is None else ReachedBandwidth(found * 1e9)


# What else a layout may count as a layer: the embedding and the head.
_EDGES = 2


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One measured step.

    Attributes:
        row: the row with every setting in its cells.
        group: the configuration; a split into what is fitted and what judges keeps it whole.
        config: canonical text of the model's config; equal ones share a graph.
        dtype: type of weights and activations.
        plan: degrees, batch and family.
        system: name of the catalogue's system.
        overrides: what the machine has other than that system.
        stack: software of the catalogue.
        measured_s: seconds of a step.
        assumed: settings that are not published, in words.
        outlier: why no sane model fits it, empty for most.
        network: the state of the network, where the run recorded it.
    """

    row: Row
    group: str
    config: str
    dtype: DType
    plan: Plan
    system: str
    overrides: tuple[str, ...]
    stack: str
    measured_s: float
    assumed: tuple[str, ...] = ()
    outlier: str = ""
    network: ReachedBandwidth | None = None


def training_case(row: Row, shop: MachineShop) -> TrainingCase:
    """Read a row; NotJudged, or what the plan's own check says, where it cannot be predicted."""
    if refused := reason(row.source.unlike, row.cells):
        raise NotJudged(refused)
    row, assumed = row.completed()
    network, stack, model = network_state(row), stack_of(row), architecture(row)
    row, fewer = _with_chunks(row, model)
    system, overrides = system_of(row), (*overrides_of(row), *(HEALTHY_PORTS if network is not None else ()))
    machine = shop.system(system, overrides, stack)
    return TrainingCase(
        row,
        group_of(row),
        config_of(row.text("model") or row.id, model.fields).text,
        dtype_of(row),
        plan_of(row, machine.stack),
        system,
        overrides,
        stack,
        step_s(row, float(machine.chip.matmul_flop_per_s(str(dtype_of(row))))),
        (*model.assumed, *assumed, *fewer),
        reason(row.source.outliers, row.cells),
        network,
    )


def _with_chunks(row: Row, model: CaseModel) -> tuple[Row, tuple[str, ...]]:
    """Take the most chunks that have a layer each, where embedding and head stand in place of layers in a stage."""
    fields, pp, vpp = model.fields, row.number("pp", 1), row.number("vpp", 1)
    layers = int(str(fields.get("num_hidden_layers", fields.get("n_layer", 0))))
    if not layers < pp * vpp <= layers + _EDGES:
        return row, ()
    said = f"vpp {layers // pp} for {vpp} (embedding and head stand in place of layers)"
    return row.having({"vpp": str(layers // pp)}), (said,)


def group_of(row: Row) -> str:
    """Return the configuration of a row: the model with its tensor and pipeline degrees; of MPT, with its sequence.

    All MPT runs split data alone, so that the sequence is what tells them apart.
    """
    if row.text("family") == "mpt":
        return f"{row.text('model')} seq{row.text('seq_len')}"
    return f"{row.text('model')} tp{row.number('tp', 1)} pp{row.number('pp', 1)}"


def machine_of(case: TrainingCase, shop: MachineShop) -> System:
    """Return the machine of a case, its network in the state that the run recorded."""
    system = shop.system(case.system, case.overrides, case.stack)
    if case.network is None:
        return system
    return shop.late(system, case.network.step_latency_s(case.plan.num_gpus))
