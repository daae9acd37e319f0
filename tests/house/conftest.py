"""The checkout as the house tests see it: its root, its files, its modules."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SHIPPED = {"benchmarks", "build", "dist", "docs", "examples", "tests"}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> tuple[Path, ...]:
    """Every file of ours, without what tools and builds leave behind."""
    return tuple(sorted(_walk(ROOT)))


@pytest.fixture(scope="session")
def floors() -> tuple[Path, ...]:
    """The folders at the root that are shipped as packages."""
    return tuple(sorted(_floors()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `module_name` every shipped module, by name, from the disk."""
    if "module_name" in metafunc.fixturenames:
        metafunc.parametrize("module_name", sorted(_modules()))


def _modules() -> Iterator[str]:
    # From the disk and not by pkgutil, which passes over a package that cannot be imported.
    for path in [*ROOT.glob("*.py"), *(p for floor in _floors() for p in floor.rglob("*.py"))]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(("slipstick", *(part for part in parts if part != "__init__")))


def _floors() -> Iterator[Path]:
    for path in ROOT.glob("*/__init__.py"):
        if path.parent.name not in NOT_SHIPPED:
            yield path.parent


def _walk(top: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = [name for name in subfolders if _is_ours(Path(folder, name))]
        yield from (Path(folder, name) for name in names if _is_ours(Path(folder, name)))


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or path.name == "__pycache__" or path.suffix in {".pyc", ".egg-info"}:
        return False
    if path.parent == ROOT and path.name in {"build", "dist", "results"}:
        return False
    return not path.name.startswith(".") or path.name in {".ci", ".gitignore"}
