"""One value whatever its form: short, in full or by --set, every key of every schema reads alike and answers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import yaml

from slipstick.backends.machine.files.catalogue import assemble, read_file
from slipstick.backends.machine.files.faults import all_of
from slipstick.backends.machine.files.kinds import NumberKind
from slipstick.backends.machine.files.number import THIS_FILE, Number
from slipstick.backends.machine.files.section import Section, form_of, leaves_of
from slipstick.backends.machine.files.shapes import AmountForm, ByName, FileForm, Inside, Intake, OneOf, Several
from slipstick.backends.machine.files.system_overrides import override
from slipstick.backends.machine.files.system_tree import Tree, part_at
from slipstick.backends.machine.load import read_system
from slipstick.backends.machine.portfolio import PortfolioFile
from slipstick.backends.machine.priced_schema import PricedSection
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.backends.machine.software.engine_schema import EngineFile
from slipstick.backends.machine.software.stack_schema import STACK
from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_schema import ChipFile, NetworkSection
from slipstick.backends.prices.book import load_prices, shipped
from slipstick.backends.prices.section import PricesSection
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.backends.technology.files.schema import TechnologySection
from slipstick.cost.money import Terms, system_money
from slipstick.driver.estimate import estimate
from slipstick.frontend.cache import GraphCache
from slipstick.frontend.loading import load
from slipstick.ir.errors import SystemFileError, UsageError
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.units import units_of

TOPS = (
    ("system", form_of(PricedSection)),
    ("chip", form_of(ChipFile)),
    ("network", form_of(NetworkSection)),
    ("stack", STACK),
    ("engine", form_of(EngineFile)),
    ("prices", form_of(PricesSection)),
    ("technology", form_of(TechnologySection)),
    ("portfolio", form_of(PortfolioFile)),
)
SCHEMAS = {name: cast("Inside[object]", form) for name, form in TOPS}
# Machines that differ in what their files have: packages, racks, tori, sections of prices, memory beside the die.
SYSTEMS = ("dgx-h100", "gb200-nvl72", "mi300x-platform", "tpu-v5p-pod", "xeon-server")
PARTS = {"dgx-h100": ("chip.memory=4xhbm4", "nic=800g", "scale-up=nvl72", "rack=liquid")}
CASES = [(name, ()) for name in SYSTEMS] + list(PARTS.items())
NONSENSE: tuple[Tree, ...] = ("lots", "3 parsecs", "$", "1,2", "-1", True, [], [1], {"value": None}, {"value": "7 B7"})

Put = Callable[[Tree], Tree]
Place = tuple[tuple[str, ...], AmountForm, Put]


def put_below(put: Put, rest: Mapping[str, Tree], key: str, leaf: Tree) -> Tree:
    """Return the file that has a section with a value at a key."""
    return put({**rest, key: leaf})


def places(
    form: FileForm, path: tuple[str, ...] = (), put: Put = lambda leaf: leaf, inside: str = ""
) -> Iterator[Place]:
    """Yield each numeric key of a form: its path, its form, and what makes a file of its value alone."""
    match form:
        case AmountForm():
            yield path, form, put
        case Inside() if not form.title or f"/{form.title}/" not in inside:
            marks = dict.fromkeys(sorted(form.marks)[:1])
            for key, place in form.fields().items():
                entry = partial(put_below, put, {"name": "it", **marks}, key)
                yield from places(place.form, (*path, key), entry, f"{inside}/{form.title}/")
        case Several():
            named = isinstance(form.form, Inside | OneOf)
            yield from places(form.form, (*path, "it" if named else "0"), lambda leaf: put([leaf]), inside)
        case ByName():
            word = (*form.words, "it")[0]
            yield from places(form.form, (*path, word), lambda leaf: put({word: leaf}), inside)
        case OneOf():
            for one in form.forms:
                yield from places(one, path, put, inside)


def sample(kind: NumberKind) -> float:
    """Return a number that a kind allows, in base units, none that is a default."""
    low, high = max(kind.sane[0], kind.least, 1e-3), min(kind.sane[1], kind.most, kind.below, 1e3)
    number = (low * high) ** 0.5 if low < high else kind.sane[0] * 3
    return float(max(round(number), 1)) if kind.whole else number


def read(form: AmountForm, given: Tree) -> tuple[object, object]:
    """Read a number; return its value, and its record without what says where it comes from."""
    intake = Intake()
    value = form.read(given, (), "key", intake)
    assert not intake.faults, all_of("key", intake.faults)
    record = intake.numbers[0][1].record("key")
    return value.si if isinstance(value, Number) else value, replace(record, source="", confidence="estimated")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_number_reads_alike_short_in_full_and_set(schema: str) -> None:
    top = SCHEMAS[schema]
    found = list(places(top))
    assert found
    for keys, form, put in found:
        number, unit = sample(form.kind), form.kind.dimension
        text = f"{number!r} {unit}" if unit != "1" else f"{number!r}"
        full: Tree = {"value": number, "unit": unit, "confidence": "estimated", "source": THIS_FILE}
        quoted: Tree = {"value": text, "confidence": "estimated", "source": THIS_FILE}
        tree = put(None)
        assert isinstance(tree, dict)
        leaf = part_at(override(tree, f"{'.'.join(keys)}={text}", top), keys)
        forms = [read(form, one) for one in (text, full, quoted, leaf)]
        bare_unit = [(value, replace(record, unit="")) for value, record in forms]  # type: ignore[type-var]
        assert bare_unit == bare_unit[:1] * 4, keys


@pytest.mark.parametrize("schema", SCHEMAS)
def test_nonsense_is_refused_with_its_key_what_was_given_and_what_is_allowed(schema: str) -> None:
    top = SCHEMAS[schema]
    for keys, form, put in places(top):
        path = ".".join(keys)
        for given in NONSENSE:
            intake = Intake()
            form.read(given, keys, path, intake)
            said = str(all_of("it", intake.faults))
            assert path in said, (path, given)
            value = given.get("value") if isinstance(given, dict) else given
            assert isinstance(given, dict) or f"{value}" in said or repr(value) in said, said
            assert any(w in said for w in ("allowed", "must", "expected", "missing", "ambiguous", "$30,000")), said
        tree = put(None)
        assert isinstance(tree, dict)
        with pytest.raises(UsageError, match=rf"{path}: 'lots' is not a quantity") as refused:
            override(tree, f"{path}=lots", top)
        assert units_of(form.kind.dimension) in str(refused.value)


def is_number(tree: Tree) -> bool:
    return isinstance(tree, dict) and "value" in tree


def text_of(tree: Mapping[str, Tree]) -> str:
    return f"{tree['value']} {tree.get('unit') or ''}".strip()


def rewrite(tree: Tree, form: Callable[[dict[str, Tree]], Tree]) -> Tree:
    """Return a file with every number in another form."""
    if isinstance(tree, list):
        return [rewrite(one, form) for one in tree]
    if not isinstance(tree, dict):
        return tree
    return form(tree) if is_number(tree) else {key: rewrite(one, form) for key, one in tree.items()}


def short(tree: dict[str, Tree]) -> Tree:
    return text_of(tree)


def dollars(tree: dict[str, Tree]) -> Tree:
    """Write money as people do, and all else short."""
    unit, value = tree.get("unit"), tree["value"]
    return f"${value:,}" if unit == "USD" and isinstance(value, int) else text_of(tree)


def full(tree: dict[str, Tree]) -> Tree:
    return {**{k: v for k, v in tree.items() if k in ("value", "unit")}, "confidence": "estimated", "source": THIS_FILE}


def assignments(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every number of a file as --set says it."""
    if isinstance(tree, dict) and is_number(tree):
        yield f"{'.'.join(path)}={text_of(tree)}"
    elif isinstance(tree, dict):
        for key, one in tree.items():
            yield from assignments(one, (*path, key))
    elif isinstance(tree, list):
        for place, one in enumerate(tree):
            name = one.get("name") if isinstance(one, dict) else None
            yield from assignments(one, (*path, str(place) if name is None else str(name)))


def machine(name: str) -> dict[str, Tree]:
    """Return a machine as one file, with prices of its own."""
    tree = dict(assemble(name).tree)
    own: Tree = {"memories": {"hbm4": {"price": {"value": 30, "unit": "USD/GB", "source": "a quote"}}}}
    return {**tree, "calibration": "default", "prices": own}


def answers(system: System) -> list[float]:
    """Return the time, memory and energy of a step, and what the machine costs."""
    plan = make_plan(num_gpus=8, tp=2, seq_len=2048, global_batch=32, family=Family(sp=True, zero=1))
    graph = load("llama-3.1-8b", cache=GraphCache.default())
    money = system_money(system, 64, Terms())
    return [*estimate(graph, system, plan).metrics.values(), *map(float, np.ravel(money.owned.gpu_hour.usd))]


def without_sources(system: System) -> System:
    prices = system.own_prices
    assert prices is not None
    return replace(system, sources=(), changed=(), own_prices=None)


def numbers_of(system: System) -> dict[str, float]:
    assert system.own_prices is not None
    records = (*system.sources, *system.own_prices.records)
    return {record.path: record.value_si for record in records}


@pytest.mark.parametrize(("name", "parts"), CASES)
def test_a_machine_answers_alike_in_every_form_of_its_numbers(name: str, parts: Sequence[str]) -> None:
    tree = machine(name)
    texts = {form: yaml.safe_dump(rewrite(tree, form), sort_keys=False) for form in (full, short, dollars)}
    found = [read_system(text, name, overrides=parts) for text in texts.values()]
    # Assignments go over parts, so that without parts they say each number again.
    found += [] if parts else [read_system(texts[full], name, overrides=list(assignments(tree)))]
    want, *others = found
    for other in others:
        assert numbers_of(other) == numbers_of(want)
        assert without_sources(other) == without_sources(want)
        assert answers(other) == answers(want)
    assert [other.sources for other in others[:2]] == [want.sources] * 2


def amounts(section: Section) -> dict[str, object]:
    """Return every number and word of a section by path."""
    return {path: leaf.si if isinstance(leaf, Number) else leaf for path, leaf in leaves_of(section)}


@pytest.mark.parametrize("form", [short, dollars, full])
def test_prices_technology_and_engines_are_alike_in_every_form(
    form: Callable[[dict[str, Tree]], Tree], tmp_path: Path
) -> None:
    book = {key: part for file in shipped() for key, part in file.tree.items()}
    technology = Path(load_technology.__code__.co_filename).parent / "data" / "units.yaml"
    sources: Sequence[tuple[Tree, Callable[[Path], object]]] = (
        ({**book, "name": "mine"}, lambda path: amounts(load_prices(path).section)),
        (yaml.safe_load(technology.read_text()), lambda path: amounts(load_technology(path).section)),
        (read_file("engines", "vllm").tree, lambda path: replace(load_engine(path), sources=(), accuracy=None)),
    )
    for place, (tree, load_from) in enumerate(sources):
        paths = [tmp_path / f"{place}-{name}.yaml" for name in ("as-it-is", "rewritten")]
        paths[0].write_text(yaml.safe_dump(tree))
        paths[1].write_text(yaml.safe_dump(rewrite(tree, form)))
        assert load_from(paths[1]) == load_from(paths[0])


def test_what_stands_around_a_designed_chip_is_alike_in_every_form(tmp_path: Path) -> None:
    technology = load_technology()
    chip = design(Budget(area_mm2=800.0, power_w=700.0, node="N5"), technology)
    texts = []
    for form in (full, short):
        path = tmp_path / f"{form.__name__}.yaml"
        path.write_text(yaml.safe_dump(rewrite(dict(read_file("systems", "dgx-h100").tree), form)))
        texts.append(system_text(chip, "mine", 16, "ndr-infiniband", technology, like=path).replace(str(path), "it"))
    systems = [read_system(text, "mine") for text in texts]
    assert {n.path: n.value_si for n in systems[0].sources} == {n.path: n.value_si for n in systems[1].sources}


def test_a_number_that_a_part_needs_and_nobody_can_read_is_named() -> None:
    tree = machine("dgx-h100")
    chip = tree["chip"]
    assert isinstance(chip, dict)
    memory: Tree = {"hbm": {"capacity": "80 bananas", "bandwidth": "3350 GB/s"}}
    text = yaml.safe_dump({**tree, "chip": {**chip, "memory": memory}})
    with pytest.raises(SystemFileError, match=r"chip\.memory\.hbm\.capacity: unknown unit 'bananas'.*allowed: B, MB"):
        read_system(text, "mine", overrides=["chip.memory=4xhbm4"])


def test_a_number_without_its_source_takes_no_other_ones(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nnodes: {N5: {wafer_price: {value: 1, unit: USD}}}\n")
    with pytest.raises(SystemFileError, match=r"nodes\.N5\.wafer_price: missing source"):
        load_prices(mine)
