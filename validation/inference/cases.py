"""A row of a table of serving as a case: what is served, by what, on what, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from ...cost.serving.traffic.requests import Lengths
from ...frontend import config_of
from ..rows.machines import system_of
from ..rows.models import named
from ..rows.rows import NotJudged, Row
from .forms import Form, Measured, form_of, measured_of
from .numerics import Numerics, numerics_of
from .outliers import in_no_fit, outlier
from .replicas import Laid, Pool, pools_of, replica_of
from .settings import Settings, settings_of
from .sources import engine_of, source_of


@dataclass(frozen=True, slots=True)
class Layout:
    """What runs the requests of a case: one replica, or a pool for prompts and a pool for decodes."""

    replica: Laid
    prefill: Pool | None = None
    decode: Pool | None = None

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
    form: Form
    config: str
    dense: bool
    numerics: Numerics
    layout: Layout
    system: str
    engine: str
    batch: int
    lengths: Lengths
    measured: tuple[Measured, ...]
    settings: Settings
    assumed: tuple[str, ...] = ()
    excluded: str = ""
    in_no_fit: bool = False


def served_case(row: Row) -> ServedCase:
    """Read a row; NotJudged where it cannot be predicted."""
    source, engine = source_of(row), engine_of(row)
    refused = source.unknown or source.refused(row)
    if refused:
        raise NotJudged(refused)
    if not engine:
        raise NotJudged(f"the catalogue has no engine '{row.text('engine')}'")
    form, model = form_of(row), named(row)
    layout = _layout(source.completed(row), form)
    numerics = numerics_of(row, engine)
    share, said = source.share(row)
    assumed = (*model.assumed, *numerics.assumed, *layout.assumed, *([said] if said else []))
    return ServedCase(
        row, _group(row, layout), form,
        config_of(row.text("model"), model.fields).text, not _has_experts(model.fields), numerics, layout,
        system_of(row), engine, row.number("batch_or_concurrency", 1),
        Lengths(_tokens(row, "input_tokens", share), _tokens(row, "output_tokens", share)),
        measured_of(row, form, source.derived), settings_of(row, source.offline), assumed, outlier(row),
        source.judges_only or in_no_fit(row),
    )  # fmt: skip


def _group(row: Row, layout: Layout) -> str:
    """Return the configuration of a row: model, types, degrees and lengths, under any load."""
    lengths = f"{row.text('input_tokens')}/{row.text('output_tokens')}"
    return f"{row.text('model')} {row.text('precision')} {layout.text} {lengths}"


def _layout(row: Row, form: Form) -> Layout:
    if form is not Form.POOLS:
        return Layout(replica_of(row))
    prefill, decode = pools_of(row)
    return Layout(decode.laid, prefill, decode)


def _tokens(row: Row, column: str, share: float) -> float:
    return float(max(1, round(row.number(column) * share)))


def _has_experts(fields: object) -> bool:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return isinstance(fields, dict) and any(name in fields for name in names)
