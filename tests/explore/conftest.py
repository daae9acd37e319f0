"""What stands around designs in these tests, what they run, and jobs that other processes import."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.driver.estimate import lower
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.text.files import load_graph

ROOT = Path(__file__).resolve().parents[2]
GRAPH = "tests/golden/tiny-llama.train.graph"


@pytest.fixture(scope="session")
def setting() -> DesignSetting:
    return DesignSetting(technology=load_technology(), prices=load_prices(), num_gpus=64)


@pytest.fixture(scope="session")
def job(pytestconfig: pytest.Config) -> DesignJob:
    """A Llama of two layers on 16 devices: every axis that a chip's numbers meet, and a run of 1000 steps."""
    family = Family(sp=True, pp=True, zero=1)
    plan = make_plan(num_gpus=16, tp=2, pp=2, seq_len=64, global_batch=64, family=family)
    return DesignJob(lower(load_graph(pytestconfig.rootpath / GRAPH), family), plan, 1000.0)


@pytest.fixture(scope="module")
def jobs_are_importable() -> Iterator[None]:
    """Let other processes import the jobs of tests under the names that they have in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield
