"""Rules of numbers say the same of one plan as of columns of many, whatever the words."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError
from slipstick.ir.plan import PlanWords, plan_of, structure_of
from slipstick.ir.plan.case import Above, PlanCase
from slipstick.ir.plan.cases import contradiction, legal
from slipstick.ir.plan.word import changed
from slipstick.ir.plan.words import WORDS, Family

NAMES = ("num_gpus", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "global_batch", "cp_ulysses", "dp_shard")
SMALL = {"num_gpus": [4, 8, 12, 24, 48], "global_batch": [8, 24, 48, 96], "dp_shard": [1, 1, 2, 3]}
# What each word may be besides its default, of words that have no list of choices.
MORE: dict[str, list[object]] = {
    "routing_nodes": [2, -1], "zero": [1, 2, 3, 4], "offload": [("optimizer",), ("optimizer", "params"), ("params",)],
    "recompute_every": [2], "recompute_layers": [2], "bf16_first": [1], "order": ["dp-tp-cp-ep-pp", "tp-cp"],
    "pp_layout": ["even", "odd"], "recompute_modules": [("mlp",)],
}  # fmt: skip


@st.composite
def policies(draw: st.DrawFn) -> dict[str, object]:
    """A few words that are not as they are by default."""
    rows = [row for row in WORDS.values() if row.field not in (*NAMES, "phase", "seq_len", "dp", "etp")]
    picked = draw(st.lists(st.sampled_from(rows), max_size=2, unique_by=lambda row: row.name))
    found: dict[str, object] = {}
    for row in picked:
        values = MORE.get(row.field) or [row.read(one) for one in row.word.choices]
        if row.kind is bool:
            values = [True, False]
        if values:
            found[row.field] = draw(st.sampled_from(values))
    return found


def test_columns_and_plans_agree_on_what_is_legal() -> None:
    """A column's verdict and the words' own together are that of `make_plan`; both kinds of plans are met."""
    seen: dict[bool, int] = {True: 0, False: 0}

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(
        policies(), st.sampled_from(["train", "train", "prefill", "decode"]), st.booleans(),
        st.lists(st.tuples(*(st.sampled_from(SMALL.get(name, [1, 1, 1, 1, 2, 4, 3])) for name in NAMES)), min_size=6,
                 max_size=6),
    )  # fmt: skip
    def agree(said: dict[str, object], phase: str, whole: bool, rows: list[tuple[int, ...]]) -> None:
        for numbers in rows:
            # Inference has no batch of a step, and no states to shard.
            own = {} if phase == "train" else {"global_batch": None, "dp_shard": None}
            numbered = {**dict(zip(NAMES, numbers, strict=True)), **own, "etp": 1 if whole else None, **said}
            words = changed(PlanWords(phase=phase, seq_len=64, zero=int(phase == "train")), numbered)
            made = _is_made(words)
            seen[made] += 1
            try:
                family = structure_of(words)
            except PlanError:
                assert not made
                continue
            assert made == (_rows(family, [numbers, numbers], words)[0] and not _contradicts(family, words))

    agree()
    assert min(seen.values()) > 50


def _is_made(words: PlanWords) -> bool:
    try:
        plan_of(words)
    except (PlanError, NotBuiltError, UnknownNameError):
        return False
    return True


def _contradicts(family: Family, words: PlanWords) -> bool:
    try:
        return bool(contradiction(family, Above(words.tp > 1, words.pp > 1, words.cp > 1, words.ep > 1)))
    except UnknownNameError:
        return True


def _rows(family: Family, rows: list[tuple[int, ...]], words: PlanWords) -> list[bool]:
    columns = dict(zip(NAMES, np.array(rows, dtype=np.int64).T, strict=True))
    columns = {name: column for name, column in columns.items() if getattr(words, name) is not None}
    # A load is one for all rows.
    loads = {"capacity_factor": words.capacity_factor, "expert_imbalance": words.expert_imbalance}
    etp = {} if words.etp is None else {"etp": columns["tp"] * 0 + words.etp}
    case: PlanCase = changed(PlanCase.columns(family, columns | etp), loads)
    return [bool(one) for one in legal(case)]


def test_a_table_of_mixed_rows_has_a_verdict_each() -> None:
    """Of 8 GPUs tp 2 and 4 divide, 3 does not; of a batch of 8, micro-batches of 2 divide what replicas have."""
    gpus = np.array([8, 8, 8, 8])
    tp, mbs = np.array([2, 3, 4, 4]), np.array([2, 1, 4, 8])
    case = PlanCase.columns(
        Family(), {"num_gpus": gpus, "tp": tp, "micro_batch": mbs, "global_batch": np.array([8] * 4)}
    )
    assert legal(case).tolist() == [True, False, True, False]
