"""A few model types against DTensor, transformers' own plan, FSDP2 and HSDP; `make oracles` takes all of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

from slipstick.benchmarks.oracles.case import ORACLES, Found, compare
from slipstick.benchmarks.oracles.page import page
from slipstick.benchmarks.oracles.ran import Ran, differences

pytestmark = pytest.mark.oracle

# An input that the plan splits beside packed columns, whose heads DTensor's naive split does not know; gradients behind
# an upcast, of a block whose attention and MLP share an input; a last norm whose weight is computed from its parameter.
SAMPLE = {
    "glm4": ("theirs cannot", "same", "same", "same"),
    "cohere": ("same", "same", "same", "same"),
    "nemotron": ("same", "same", "same", "same"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Transformers says what a config leaves open; nobody is there to read it."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_it_runs_as_pytorch_and_transformers_run_it(model_type: str) -> None:
    found = compare(model_type)
    assert tuple(f.outcome for f in found) == SAMPLE[model_type], [f.what for f in found]
    # Nothing agrees because nothing ran: a layer has seven products or more, each in forward and twice in backward.
    assert all(f.messages > 10 and f.products > 30 for f in found if f.outcome == "same")


def test_what_differs_is_said_of_both_sides() -> None:
    mine = Ran(Counter({("all_reduce", 8): 2}), products=Counter({(2, 3, 4): 1}))
    theirs = Ran(Counter({("all_reduce", 8): 1, ("all_gather", 4): 1}), products=Counter({(2, 3, 4): 1}))
    assert differences(mine, mine) == {}
    assert differences(mine, theirs) == {
        "forward": "ours 1 x ('all_reduce', 8), theirs 1 x ('all_gather', 4)",
    }


def test_the_page_counts_what_is_the_same_and_explains_the_rest() -> None:
    outcomes = ("same", "nothing to split", "theirs cannot", "differs")
    found = [Found("bert", o, outcome, "so") for o, outcome in zip(ORACLES, outcomes, strict=True)]
    lines = page(found).splitlines()
    assert "| bert | same 0, 0 | - | cannot | differs |" in lines
    assert "- **module by module**: 1 of 1 compared types are the same; no others." in lines
    assert "- bert, HSDP: **not explained**. so" in lines
    assert "- FSDP2: bert: `so`" in lines
