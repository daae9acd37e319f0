"""A field of a record without a key in its file could never be read."""

from dataclasses import fields

import pytest

from slipstick.backends.machine.files.system_numbers import Section
from slipstick.backends.machine.software import engine, engine_schema, stack, stack_schema

PAIRS: dict[type, type[Section]] = {
    stack.HostFloor: stack_schema.HostFloorSection,
    stack.Overlap: stack_schema.OverlapSection,
    stack.Slowdown: stack_schema.SlowdownSection,
    stack.KernelSlowdown: stack_schema.KernelSlowdownSection,
    engine.Overheads: engine_schema.OverheadsSection,
    engine.Scheduler: engine_schema.SchedulerSection,
}


@pytest.mark.parametrize("record", PAIRS)
def test_each_field_has_a_key_and_each_key_a_field(record: type) -> None:
    assert {one.name.removesuffix("_s") for one in fields(record)} == set(PAIRS[record].model_fields)
