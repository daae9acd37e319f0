from __future__ import annotations

import pytest

from slipstick.explore.executors.executors import EXECUTORS, executor_of
from slipstick.explore.executors.on_ray import OnRay
from slipstick.explore.executors.processes import Processes
from slipstick.explore.job import InProcess
from slipstick.ir.errors import UnknownNameError, UsageError


def test_names_are_executors() -> None:
    assert [type(executor_of(name)) for name in EXECUTORS] == [InProcess, Processes, OnRay]
    assert isinstance(executor_of("in-process", 1), InProcess)
    assert executor_of("processes", 3) == Processes(3)
    assert executor_of("ray", 3, "head:6379") == OnRay("head:6379", 3)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown executor 'process'; did you mean 'processes'\?"):
        executor_of("process")


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("num_workers", [0, -1])
def test_fewer_workers_than_one_are_refused(name: str, num_workers: int) -> None:
    with pytest.raises(UsageError, match=rf"{num_workers} workers can do nothing; it takes 1 at least"):
        executor_of(name, num_workers)


def test_one_process_does_not_take_several_workers() -> None:
    with pytest.raises(
        UsageError, match=r"executor 'local' works alone, 4 workers do not go; processes takes any number"
    ):
        executor_of("local", 4)


@pytest.mark.parametrize("name", ["local", "processes"])
def test_only_ray_takes_an_address(name: str) -> None:
    with pytest.raises(UsageError, match=rf"executor '{name}' takes no address \('head:6379'\)"):
        executor_of(name, address="head:6379")
