"""Every module imports, runs its examples and exists once."""

import doctest
import importlib
import sys
from collections import Counter
from pathlib import Path


def test_module_imports_and_its_examples_run(module_name: str) -> None:
    module = importlib.import_module(module_name)
    assert doctest.testmod(module).failed == 0


def test_module_says_what_it_is_for(module_name: str) -> None:
    assert importlib.import_module(module_name).__doc__


def test_no_module_is_loaded_twice(root: Path, floors: tuple[Path, ...]) -> None:
    importlib.import_module("slipstick.ir.graph")
    homes = [Path(file) for m in tuple(sys.modules.values()) if (file := getattr(m, "__file__", None))]
    times = Counter(path.resolve() for path in homes)
    assert root / "ir" / "graph.py" in times
    twice = {str(p) for p, n in times.items() if n > 1 and any(floor in p.parents for floor in floors)}
    assert twice == set()
