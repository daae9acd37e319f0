"""A row of a table of serving as a case: what is served, by what, on what, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...cost.serving.traffic.requests import Lengths
from ...frontend import config_of
from ...ir.records import dataclass
from ...ir.types import DType
from ..rows.publications import reason
from ..rows.rows import NotJudged, Row
from ..rows.words import engine_of, named, recipe_named, system_of
from .forms import MeasuredQuantity, RequestForm, form_of, measured_of
from .replicas import ReplicaLayout, ReplicaPool, pools_of, replica_of
from .settings import RecipeSettings, settings_of

_DTYPES: Mapping[str, DType] = MappingProxyType({"fp16": DType.FP16, "bf16": DType.BF16})


@dataclass(frozen=True, slots=True)
class Numerics:
    """Types of a served model.

    Attributes:
        dtype: of activations, and of weights without a recipe.
        precision: the recipe of products of weights in layers.
        kv_dtype: of the cache; `same` is that of activations.
    """

    dtype: DType
    precision: str = "none"
    kv_dtype: str = "same"


def numerics_of(row: Row, engine: str) -> Numerics:
    """Return the types of a row; NotJudged where a word is no recipe that is known.

    Without a word weights are those of the checkpoint, bf16.
    """
    given = row.text("precision").lower()
    if given in ("nan", ""):
        return Numerics(DType.BF16)
    if given in _DTYPES:
        return Numerics(_DTYPES[given])
    recipe = recipe_named(row)
    # Experts in mxfp4 meet rows in mxfp8 where units take both; vLLM keeps bf16 unless told otherwise.
    blackwell = any(name in row.text("accelerator") for name in ("B200", "B300"))
    mixes = recipe == "mxfp4" and blackwell and engine != "vllm"
    return Numerics(DType.BF16, "mxfp4-mxfp8" if mixes else recipe, row.text("kv_dtype") or "same")


@dataclass(frozen=True, slots=True)
class CaseServers:
    """What runs the requests of a case: one replica, or a pool for prompts and a pool for decodes."""

    replica: ReplicaLayout
    prefill: ReplicaPool | None = None
    decode: ReplicaPool | None = None

    @property
    def text(self) -> str:
        """Its degrees in words."""
        if self.prefill is None or self.decode is None:
            return self.replica.replica.text
        pools = (self.prefill, self.decode)
        return " / ".join(f"{pool.workers} x {pool.laid.replica.text}" for pool in pools)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What had to be assumed for it."""
        pools = [pool.laid.assumed for pool in (self.prefill, self.decode) if pool is not None]
        return sum(pools, ()) if pools else self.replica.assumed


@dataclass(frozen=True, slots=True)
class ServedCase:
    """Requests that were served, and what was measured of them.

    Attributes:
        row: as published.
        group: the configuration; a split into what is fitted and what judges keeps it whole.
        form: how requests came.
        config: canonical text of the model's config; equal ones share graphs.
        dense: whether the model has no experts.
        numerics: types of weights, activations and cache.
        layout: degrees of what runs them.
        system: name of the catalogue's system.
        engine: name of the catalogue's engine.
        batch: sequences at once: of a replica, of one of its groups where attention is data parallel, of all pools.
        lengths: tokens of a prompt and of what follows.
        measured: the quantities.
        settings: how its engine was started.
        assumed: settings that are not published, in words.
        excluded: why the row is no measure of a model, empty for most.
        in_no_fit: whether it judges alone.
    """

    row: Row
    group: str
    form: RequestForm
    config: str
    dense: bool
    numerics: Numerics
    layout: CaseServers
    system: str
    engine: str
    batch: int
    lengths: Lengths
    measured: tuple[MeasuredQuantity, ...]
    settings: RecipeSettings
    assumed: tuple[str, ...] = ()
    excluded: str = ""
    in_no_fit: bool = False


def served_case(row: Row) -> ServedCase:
    """Read a row; NotJudged where it cannot be predicted."""
    source, engine = row.source, engine_of(row)
    if refused := reason(source.unlike, row.cells):
        raise NotJudged(refused)
    if not engine:
        raise NotJudged(f"the catalogue has no engine '{row.text('engine')}'")
    form, model = form_of(row), named(row)
    filled, assumed = row.completed()
    layout, numerics = _layout(filled, form), numerics_of(filled, engine)
    share = filled.measured("length_share") or 1.0
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return ServedCase(
        row,
        _group(row, layout),
        form,
        config_of(row.text("model"), model.fields).text,
        not any(name in model.fields for name in names),
        numerics,
        layout,
        system_of(row),
        engine,
        row.number("batch_or_concurrency", 1),
        Lengths(_tokens(row, "input_tokens", share), _tokens(row, "output_tokens", share)),
        measured_of(row, form, source.computed),
        settings_of(filled),
        (*model.assumed, *assumed, *layout.assumed),
        reason(source.outliers, row.cells),
        any(rule.applies_to(row.cells) for rule in source.not_fitted),
    )


def _group(row: Row, layout: CaseServers) -> str:
    """Return the configuration of a row: model, types, degrees and lengths, under any load."""
    lengths = f"{row.text('input_tokens')}/{row.text('output_tokens')}"
    return f"{row.text('model')} {row.text('precision')} {layout.text} {lengths}"


def _layout(row: Row, form: RequestForm) -> CaseServers:
    if form is not RequestForm.POOLS:
        return CaseServers(replica_of(row))
    prefill, decode = pools_of(row)
    return CaseServers(decode.laid, prefill, decode)


def _tokens(row: Row, column: str, share: float) -> float:
    return float(max(1, round(row.number(column) * share)))
