"""The integer program of memory policies against all choices there are, on small random problems."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.explore.recompute.choices import best_choice, front
from slipstick.explore.recompute.results import LayerResult, LayerResults

_SIZES, _TIMES = st.integers(1, 9), st.integers(0, 9)


@st.composite
def problems(draw: st.DrawFn) -> LayerResults:
    """Up to six results; some share a name, some have none, later ones read earlier ones."""
    num = draw(st.integers(1, 6))
    results = [
        LayerResult(
            draw(st.sampled_from(["a", "b", "c", "d", ""])),
            float(draw(_TIMES)),
            float(draw(_SIZES)),
            tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=2)))) if k else (),
            draw(st.booleans()),
            float(draw(st.sampled_from([0, 0, 3]))),
        )
        for k in range(num)
    ]
    speed = draw(st.sampled_from([None, 1.0, 4.0]))
    return LayerResults(tuple(results), float(draw(_TIMES)), float(draw(_TIMES)), speed)


def cost(layers: LayerResults, places: dict[str, str]) -> tuple[float, float]:
    """Seconds and bytes of one choice: made again is what is needed and is not there, and what that reads."""
    missing = [k for k, r in enumerate(layers.results) if r.needed and places.get(r.name, "again") == "again"]
    again: set[int] = set()
    while missing:
        k = missing.pop()
        if k not in again:
            again.add(k)
            missing += [i for i in layers.results[k].reads if places.get(layers.results[i].name, "again") == "again"]
    seconds = sum(layers.results[k].seconds for k in again)
    sent = sum(r.num_bytes + r.handed_bytes for r in layers.results if places.get(r.name) == "host")
    exposed = 0.0
    if layers.bytes_per_s is not None:
        copies = sent / layers.bytes_per_s
        exposed = max(0.0, copies - layers.forward_s) + max(0.0, copies - layers.backward_s - seconds)
    kept = sum(r.num_bytes for r in layers.results if places.get(r.name) == "device")
    spared = sum(r.handed_bytes for r in layers.results if places.get(r.name) == "host")
    return seconds + exposed, kept - spared


def every_choice(layers: LayerResults) -> list[tuple[float, float]]:
    where = ("again", "device") if layers.bytes_per_s is None else ("again", "device", "host")
    return [cost(layers, dict(zip(layers.names, places, strict=True)))
            for places in product(where, repeat=len(layers.names))]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(-5, 40))
def test_the_program_finds_the_best_of_all_choices(layers: LayerResults, limit: int) -> None:
    every = [found for found in every_choice(layers) if found[1] <= limit]
    chosen = best_choice(layers, float(limit))
    if not every:
        assert chosen is None
        return
    assert chosen is not None
    seconds, num_bytes = min(every)
    assert chosen.seconds == pytest.approx(seconds, abs=1e-6)
    assert chosen.num_bytes == pytest.approx(num_bytes, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_front_is_that_of_all_choices(layers: LayerResults) -> None:
    every = sorted(set(every_choice(layers)))
    best = [(s, b) for s, b in every if not any(o != (s, b) and o[0] <= s and o[1] <= b for o in every)]
    found = [(c.seconds, c.num_bytes) for c in front(layers)]
    assert found == [pytest.approx(pair, abs=1e-6) for pair in best]


def test_what_is_kept_and_offloaded_is_said_by_name() -> None:
    a, b = LayerResult("a", 5.0, 10.0, (), True), LayerResult("b", 1.0, 10.0, (0,), True)
    layers = LayerResults((a, b), 4.0, 4.0, None)
    one = best_choice(layers, 10.0)
    assert one is not None
    assert (one.keep, one.offload, one.seconds) == (("a",), (), 1.0)
    # A link that takes 10 bytes behind the forward phase keeps both for nothing.
    linked = best_choice(LayerResults((a, b), 4.0, 4.0, 2.5), 10.0)
    assert linked is not None
    assert (len(linked.keep), len(linked.offload), linked.seconds) == (1, 1, 0.0)


def test_only_some_names_may_be_kept() -> None:
    a, b = LayerResult("a", 5.0, 10.0, (), True), LayerResult("b", 1.0, 10.0, (0,), True)
    only = best_choice(LayerResults((a, b), 4.0, 4.0).only({"b"}), 100.0)
    assert only is not None
    assert (only.keep, only.seconds) == (("b",), 5.0)
