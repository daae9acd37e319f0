from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def jobs_are_importable() -> Iterator[None]:
    """Let other processes import the jobs of tests under the names that they have in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield
