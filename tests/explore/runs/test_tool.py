from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import slipstick
from slipstick.explore.runs.tool import digest_of, tool_version

FILES = ("__init__.py", "driver.py", "ir/__init__.py", "ir/plan.py", "ir/data/chips.yaml")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n", encoding="utf-8")
    return tmp_path / "package"


def test_the_version_is_that_of_the_package_and_of_its_code() -> None:
    version, _, digest = tool_version().partition("+")
    assert version == slipstick.__version__
    assert re.fullmatch("[0-9a-f]{12}", digest)
    assert tool_version() == tool_version()


def test_where_a_package_lies_does_not_matter(package: Path, tmp_path: Path) -> None:
    there = shutil.copytree(package, tmp_path / "elsewhere")
    assert digest_of(there) == digest_of(package)


@pytest.mark.parametrize("name", FILES)
def test_every_file_counts(package: Path, name: str) -> None:
    before = digest_of(package)
    (package / name).write_text("another", encoding="utf-8")
    assert digest_of(package) != before


def test_a_new_name_counts(package: Path) -> None:
    before = digest_of(package)
    (package / "ir" / "plan.py").rename(package / "ir" / "plans.py")
    assert digest_of(package) != before


@pytest.mark.parametrize(
    "name", ["benchmarks/__init__.py", "tests/test_plan.py", "ir/__pycache__/plan.cpython-311.pyc", "ir/notes.txt"]
)
def test_what_makes_no_numbers_does_not_count(package: Path, name: str) -> None:
    before = digest_of(package)
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("anything", encoding="utf-8")
    assert digest_of(package) == before


def test_a_line_that_moves_to_the_next_file_counts(package: Path) -> None:
    (package / "driver.py").write_text("a", encoding="utf-8")
    (package / "ir" / "__init__.py").write_text("b", encoding="utf-8")
    before = digest_of(package)
    (package / "driver.py").write_text("ab", encoding="utf-8")
    (package / "ir" / "__init__.py").write_text("", encoding="utf-8")
    assert digest_of(package) != before
