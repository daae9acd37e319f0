"""A server runs whatever length a request has: it pads to the next that a model takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.driver.serve.notes import padding_notes
from slipstick.driver.serve.server import check_positions
from slipstick.driver.serve.tables import ServedModel, step_times
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import LengthBound
from slipstick.ir.sizes.fixed_sizes import padded
from tests.driver.serve.test_server import served, server


@pytest.mark.parametrize(
    ("bound", "holds"),
    [
        (LengthBound("kv", 2, 512), True), (LengthBound("kv", 2, 511), False), (LengthBound("kv", 2, 0, 16), True),
        (LengthBound("kv", 2, 0, 1, (100,)), True), (LengthBound("kv", 0, 512, 16), True),
        (LengthBound("kv", 2, 512, 16), False), (LengthBound("kv", 2, 512, 1, (512,)), False),
        (LengthBound("batch", 1, 64), False), (LengthBound("batch", 2, 0, 2), True), (LengthBound("seq", 1, 1), True),
    ],
)  # fmt: skip
def test_a_server_runs_every_length_up_to_its_longest_request_and_any_batch(bound: LengthBound, holds: bool) -> None:
    """It pads to sizes in steps; a decode step has one token in its sequence, whatever its graph says of `seq`."""
    decode = served().decode
    bounded = replace(served(), decode=replace(decode, source=replace(decode.source, bounds=(bound,))))
    if holds:
        check_positions(bounded, 512)
        return
    with pytest.raises(UsageError, match=f"is recorded for {bound.name} = .*, and a server runs every size"):
        check_positions(bounded, 512)


@given(
    low=st.integers(1, 300), step=st.integers(1, 130), gaps=st.sets(st.integers(0, 40), max_size=3),
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=8),
)  # fmt: skip
def test_a_padded_size_is_the_least_that_a_graph_holds_for(
    low: int, step: int, gaps: set[int], sizes: list[int]
) -> None:
    bound = LengthBound("seq", low, 0, step, tuple(low + gap * step for gap in gaps))
    graph = replace(served().prefill.source, bounds=(bound,))
    for size, found in zip(sizes, np.asarray(padded(graph, "seq", np.array(sizes, dtype=float))), strict=True):
        assert found == next(legal for legal in range(size, low + size + 50 * step) if bound.holds(legal))


def test_a_server_pads_its_steps_to_sizes_that_a_model_takes() -> None:
    """What a padded server answers is what the plain one does for sizes that need no padding."""
    bound = (LengthBound("seq", 256, 0, 256), LengthBound("kv", 256, 0, 256), LengthBound("batch", 2, 0, 2))
    lowered = [replace(one, source=replace(one.source, bounds=bound)) for one in (served().prefill, served().decode)]
    blocks = replace(server(), served=ServedModel(*lowered))
    for of in (server(), blocks):
        whole = of.phase(of.served.prefill, 2, 512).metrics["step_time_s"]
        assert whole == server().phase(served().prefill, 2, 512).metrics["step_time_s"]
    assert blocks.phase(blocks.served.prefill, 1, 257).metrics["step_time_s"] == whole
    times = [step_times(of.served, of.system, of.plan, of.engine.scheduler, 512) for of in (server(), blocks)]
    # A cache of one token takes a block of 256, with the token of the step; 512 tokens take what they take anyway.
    assert times[1].kv_bytes(1.0) == pytest.approx(times[0].kv_bytes(512.0) * 257 / 513)
    assert times[1].kv_bytes(512.0) == times[0].kv_bytes(512.0)
    assert "'tiny-llama' runs lengths of 256 or more in steps of 256" in str(list(padding_notes(blocks.served)))
