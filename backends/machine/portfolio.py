"""A portfolio as a file: products that share dies, interfaces and packages, each with its volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ...ir.errors import SystemFileError, UnknownNameError, UsageError
from .files.catalogue import read_at
from .files.faults import FileOrigin, in_files
from .files.section import Section, section_of
from .files.shapes import ByName
from .files.system_overrides import override
from .files.system_tree import Tree
from .package import Die, Package
from .system_schema import PACKAGE

# The key of a file that says that it is no machine.
PRODUCTS = "products"
_DIES = "dies"


class PortfolioFile(Section):
    """Products by name, each a package as chips have it, with the volume that its design is paid off over."""

    name: str
    products: Annotated[dict[str, Package], ByName(PACKAGE, least=1)]

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield products without a volume, and dies of one name that are not the same: one design has one size."""
        seen: dict[str, tuple[str, Die]] = {}
        for name, package in self.products.items():
            if package.volume is None:
                yield f"product '{name}' shares designs: give it a volume"
            for die, _ in package.assembly.counted_dies():
                other, first = seen.setdefault(die.name, (name, die))
                if replace(first, count=1.0) != replace(die, count=1.0):
                    yield f"die '{die.name}' of '{name}' is not that of '{other}': give it a name of its own"


def is_portfolio(name: str) -> bool:
    """Whether a name is a file that holds products."""
    path = Path(name)
    return path.suffix in (".yaml", ".yml") and path.is_file() and PRODUCTS in _tree(path)[0]


def load_portfolio(path: str | Path, overrides: Sequence[str] = ()) -> tuple[str, Mapping[str, Package]]:
    """Read the name and the products of a portfolio.

    Args:
        path: a YAML file with `name`, `products` and, where several have them, `dies` by name; a part `die: compute` of
            a product is the die of that name.
        overrides: `products.large.volume=2e5`, in order.

    Raises:
        SystemFileError: a file that cannot be read or breaks the schema; all faults with their paths.
        UnknownNameError: a die that the file does not have, an override of a key that there is not.
    """
    tree, origin = _tree(Path(path))
    dies = tree.pop(_DIES, {})
    if not isinstance(dies, dict):
        raise SystemFileError(f"{path}: dies: expected a mapping of names, as in 'compute: {{node: N5, area: ...}}'")
    found = _with_dies(tree, dies)
    assert isinstance(found, dict)
    for text in overrides:
        found = override(found, text, PortfolioFile)
    made = section_of(PortfolioFile, found, f"portfolio '{path}'", in_files([origin]))
    return made.name, {
        name: replace(one, assembly=replace(one.assembly, name=name)) if one.assembly.name == "package" else one
        for name, one in made.products.items()
    }


def _tree(path: Path) -> tuple[dict[str, Tree], FileOrigin]:
    file = read_at(path.name, str(path), path, f"portfolio '{path}'")
    return dict(file.tree), file.origin()


def _with_dies(found: Tree, dies: Mapping[str, Tree]) -> Tree:
    """Put dies in the place of their names."""
    if isinstance(found, list):
        return [_with_dies(one, dies) for one in found]
    if not isinstance(found, dict):
        return found
    if "die" not in found:
        return {key: _with_dies(one, dies) for key, one in found.items()}
    name, rest = str(found["die"]), {key: one for key, one in found.items() if key != "die"}
    die = dies.get(name)
    if not isinstance(die, dict):
        raise UnknownNameError.of("die", name, dies)
    twice = sorted(set(die) & set(rest))
    if twice:
        raise UsageError(f"die '{name}' has {', '.join(twice)} already: a product says how many, and no more")
    return {"name": name, **die, **rest}
