"""Dataclasses whose methods are written late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import ClassVar

import pytest

from slipstick.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Ours:
    """A record with every kind of field."""

    kind: ClassVar[str] = "record"
    name: str
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    scale: float = 1.0
    hidden: int = dataclasses.field(default=0, compare=False, repr=False)
    area: float = dataclasses.field(init=False, default=0.0)
    unit: str = dataclasses.field(default="s", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.scale**2)


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """The same, made by the standard library."""

    kind: ClassVar[str] = "record"
    name: str
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    scale: float = 1.0
    hidden: int = dataclasses.field(default=0, compare=False, repr=False)
    area: float = dataclasses.field(init=False, default=0.0)
    unit: str = dataclasses.field(default="s", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.scale**2)


@dataclass(frozen=True, slots=True)
class Named:
    """The record that another one adds to; hashed by its name alone."""

    name: str

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized(Named):
    """It adds a field that has no default."""

    size: int


@dataclass(slots=True)
class Open:
    """A record that may change."""

    count: int = 0


@dataclass(frozen=True, eq=False)
class Single:
    """A record that is equal to itself alone."""

    name: str = ""


def test_fields_and_methods_are_those_of_the_standard_library() -> None:
    ours, theirs = Ours("a", {"x": 1}, 3.0, unit="ms"), Theirs("a", {"x": 1}, 3.0, unit="ms")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.area == 9.0
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours.__slots__ == Theirs.__slots__
    assert ours == Ours("a", {"x": 1}, 3.0, hidden=5, unit="ms")
    assert ours != Ours("a", {"x": 1}, 3.0)
    other: object = theirs
    assert ours != other
    assert Ours("a").sizes is not Ours("a").sizes
    assert dataclasses.replace(ours, scale=2.0).area == 4.0


def test_wrong_arguments_are_refused_in_the_same_words() -> None:
    with pytest.raises(TypeError) as ours:
        Ours()  # type: ignore[call-arg]
    with pytest.raises(TypeError) as theirs:
        Theirs()  # type: ignore[call-arg]
    assert str(ours.value) == str(theirs.value).replace("Theirs", "Ours")
    with pytest.raises(TypeError, match="positional"):
        Sized("a", 3)  # type: ignore[call-arg]


def test_a_frozen_record_does_not_change() -> None:
    record = Ours("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="name"):
        record.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="name"):
        del record.name  # pyright: ignore[reportAttributeAccessIssue]
    assert record.name == "a"


def test_copies_are_equal() -> None:
    record = Sized(name="a", size=2)
    assert copy.deepcopy(record) == copy.copy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record


def test_hashes_follow_equality() -> None:
    assert len({Single(), Single()}) == 2
    assert hash(Named("a")) == hash("a")
    assert hash(Sized(name="a", size=1)) == hash(("a", 1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open())


def test_an_open_record_changes() -> None:
    record = Open()
    record.count += 1
    assert record == Open(1)


def test_a_class_that_adds_to_one_is_not_equal_to_it() -> None:
    class Below(Sized):
        """No record of its own: the methods of the one above."""

    assert Below(name="a", size=1) == Below(name="a", size=1)
    assert Below(name="a", size=1) != Sized(name="a", size=1)


def test_the_standard_library_adds_fields_to_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Wider(Named):
        width: int = 1

    assert Wider("a") == Wider("a", 1) != Wider("a", 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Wider("a").width = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Thawed", (Named,), {}))


def test_a_signature_is_there_before_the_first_object() -> None:
    @dataclass(frozen=True)
    class Fresh:
        """No object of it was made."""

        width: int
        depth: int = 2

        def __call__(self, times: int) -> int:
            return times

    assert str(inspect.signature(Fresh)) == "(width: 'int', depth: 'int' = 2)"
    assert list(inspect.signature(Ours).parameters) == list(inspect.signature(Theirs).parameters)
    made = Fresh(1)
    assert str(inspect.signature(Fresh)) == "(width: 'int', depth: 'int' = 2)"
    assert list(inspect.signature(made).parameters) == ["times"]
