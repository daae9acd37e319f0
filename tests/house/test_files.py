"""What lies where: file sizes, the list of packages, the data that is shipped, the text of the repository."""

import re
import tomllib
from pathlib import Path
from typing import TypedDict, cast

import pytest

MAX_LINES = 400
BINARY_SUFFIXES = {".gif", ".gz", ".ico", ".jpg", ".npy", ".npz", ".onnx", ".pdf", ".png", ".zip"}
# Built from pieces, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.~$})/-])/(?:" + "|".join(("work", "root", "opt")) + r")/")

PackageData = TypedDict("PackageData", {"packages": list[str], "package-data": dict[str, list[str]]})


@pytest.fixture(scope="module")
def setuptools_table(root: Path) -> PackageData:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return cast(PackageData, project["tool"]["setuptools"])


def test_no_python_file_is_longer_than_the_limit(root: Path, files: tuple[Path, ...]) -> None:
    lengths = {
        str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines())
        for path in files
        if path.suffix == ".py"
    }
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_every_package_is_listed(root: Path, floors: tuple[Path, ...], setuptools_table: PackageData) -> None:
    on_disk = {
        ".".join(("slipstick", *path.parent.relative_to(root).parts))
        for floor in floors
        for path in floor.rglob("__init__.py")
    }
    assert setuptools_table["packages"] == sorted({"slipstick"} | on_disk)


def test_every_module_lies_in_a_package(root: Path, floors: tuple[Path, ...]) -> None:
    modules = {path for floor in floors for path in floor.rglob("*.py")}
    lost = {str(p.relative_to(root)) for p in modules if not (p.parent / "__init__.py").exists()}
    assert lost == set()


def test_every_data_file_is_shipped(
    root: Path, files: tuple[Path, ...], floors: tuple[Path, ...], setuptools_table: PackageData
) -> None:
    shipped = {
        path
        for package, patterns in setuptools_table["package-data"].items()
        for pattern in patterns
        for path in root.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    data = {p for p in files if p.suffix != ".py" and any(floor in p.parents for floor in floors)}
    assert {str(path.relative_to(root)) for path in data - shipped} == set()


def test_no_stray_module_at_the_root(root: Path) -> None:
    assert {path.name for path in root.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_marker_of_types_is_there(root: Path) -> None:
    assert (root / "py.typed").read_bytes() == b""


def test_no_text_names_a_folder_of_a_machine(root: Path, files: tuple[Path, ...]) -> None:
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in files
        if path.suffix not in BINARY_SUFFIXES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("name", ["work", "root", "opt"])
def test_the_pattern_finds_machine_folders_and_nothing_else(name: str) -> None:
    assert MACHINE_PATH.search(f"see '/{name}/models'")
    assert not MACHINE_PATH.search(f"https://example.org/{name}/models and ./{name}/models and a/{name}/b")
