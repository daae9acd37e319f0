"""Nodes by name: the scaling of papers and that of foundries, each with its source, chosen by a word and printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology, scaling_names
from slipstick.backends.technology.design import Budget, design
from slipstick.backends.technology.files.chip_file import chip_text
from slipstick.ir.errors import UnknownNameError

FOUNDRY = load_technology(overrides=("scaling=foundry",))


def test_a_word_or_a_file_chooses_the_nodes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("scaling: foundry\n", encoding="utf-8")
    assert load_technology(path).section.nodes == FOUNDRY.section.nodes
    assert (load_technology().scaling, FOUNDRY.scaling) == ("papers", "foundry")
    # What is set is set of the nodes that were chosen.
    changed = load_technology(path, ("nodes.N3.logic=1.7",))
    assert changed.scale("N5", "N3").logic == pytest.approx(1 / 1.7)
    with pytest.raises(UnknownNameError, match="did you mean 'foundry'"):
        load_technology(overrides=("scaling=foundy",))


def test_foundries_claim_what_they_said() -> None:
    # TSMC: N3E has 1.6 x the logic of N5 and 34 % less power, N2 1.15 x that of N3E and 25 to 30 % less.
    three, two = FOUNDRY.scale("N5", "N3"), FOUNDRY.scale("N3", "N2")
    assert 1 / three.logic == pytest.approx(1.6)
    assert three.power == pytest.approx(1 - 0.34, abs=0.005)
    assert 1 / two.logic == pytest.approx(1.15)
    assert 0.70 <= two.power <= 0.75
    # A14 beside N2: 1.23 x the logic, 25 to 30 % less power. Caches hardly shrink from N5 on.
    last = FOUNDRY.scale("N2", "A14")
    assert 1 / last.logic == pytest.approx(1.23, rel=2e-3)
    assert 0.70 <= last.power <= 0.75
    assert 1 / FOUNDRY.scale("N5", "A14").cache < 1.2


@pytest.mark.parametrize("scaling", scaling_names())
def test_every_node_can_be_priced_and_says_its_source(scaling: str) -> None:
    technology, book = load_technology(overrides=(f"scaling={scaling}",)), load_prices().section
    assert set(technology.node_names) <= book.nodes.keys() & book.carbon.fabs.keys()
    for node in technology.section.nodes.values():
        assert min(len(gain.source) for gain in (node.logic, node.cache, node.analog, node.power)) > 5
    # Newer nodes are no older: years rise where a scaling gives them.
    years = [node.year.si for node in technology.section.nodes.values() if node.year is not None]
    assert years == sorted(years)


def test_a_design_prints_its_scaling() -> None:
    text = chip_text(design(Budget(node="A16", area_mm2=800.0, power_w=1000.0), FOUNDRY), "a", FOUNDRY)
    assert "# Nodes scaled as: foundry." in text
