"""What backs an answer is asked with the quantity: servers back no training step, steps no server."""

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.uncertainty.evidence import (
    RUNS,
    ChipEvidence,
    Evidence,
    SoftwareEvidence,
    are_sisters,
    backed,
    evidence_of,
    silicon_named,
    software_of,
)
from slipstick.driver.uncertainty.quantities import MEMORY, QUANTITIES, SERVING, STEP, TPOT, alike


def test_evidence_of_systems() -> None:
    h100 = load_system("dgx-h100", stack="nanotron")
    assert evidence_of(h100, "nanotron", STEP) == Evidence(ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)
    assert evidence_of(h100, "default", STEP).software is SoftwareEvidence.IDEAL
    assert software_of("nanotron", "B200-SXM6-180GB") is SoftwareEvidence.ELSEWHERE
    assert software_of("never heard of", h100.chip.name) is SoftwareEvidence.BORROWED
    changed = load_system("dgx-h100", ["chip.clock=1 GHz"])
    assert evidence_of(changed, "default", STEP).silicon is ChipEvidence.SISTER


def test_evidence_of_chips_goes_by_design_then_by_maker() -> None:
    assert silicon_named("H300", "hopper") is ChipEvidence.SISTER
    assert silicon_named("H300") is ChipEvidence.MAKER
    assert silicon_named("mine") is ChipEvidence.NONE


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_software_is_measured_where_runs_of_a_like_quantity_are(quantity: str) -> None:
    """Over all software and chips of the table, as counted here from its lines."""
    runs = [one for one in backed() if one.table in RUNS and one.rows and one.chip]
    chips = {one.chip for one in runs}
    for name in {one.software for one in runs} - {"default", "ideal"}:
        there = {one.chip for one in runs if one.software == name and one.quantity in alike(quantity)}
        for chip in chips:
            found = software_of(name, chip, quantity)
            assert (found is SoftwareEvidence.MEASURED) == (chip in there)
            assert (found is SoftwareEvidence.BORROWED) == (not there)


def test_servers_back_no_training_and_steps_neither_servers_nor_memory() -> None:
    h100 = load_system("dgx-h100").chip.name
    assert software_of("vllm", h100, TPOT) is SoftwareEvidence.MEASURED
    assert software_of("vllm", h100, STEP) is SoftwareEvidence.BORROWED
    assert software_of("megatron-core", h100, TPOT) is SoftwareEvidence.BORROWED
    assert set(alike(TPOT)) == set(SERVING)
    assert (alike(STEP), alike(MEMORY)) == ((STEP,), (MEMORY,))


def test_chips_of_one_design_are_sisters() -> None:
    h100, h200, b200 = (load_system(name).chip for name in ("dgx-h100", "dgx-h200", "dgx-b200"))
    assert h100.design == h200.design != b200.design
    assert are_sisters(h100.name, h200.name)
    assert not are_sisters(h100.name, b200.name)
    assert are_sisters("mine", "mine")
    assert not are_sisters("mine", "yours")
