"""Attributes as text: round trip for every kind of field, and refusals that name the field."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import ParseError
from slipstick.ir.graph import NO_ATTRS, Attrs
from slipstick.ir.ops import OPS
from slipstick.ir.sizes.expr import Dim, Expr, symbol
from slipstick.ir.text.attrs_text import parse_attrs, print_attrs


@dataclass(frozen=True, slots=True)
class Everything(Attrs):
    """One field of each kind."""

    text: str
    number: int = 0
    share: float = 0.5
    flag: bool = False
    dim: Dim = 1
    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ("a",)
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Odd(Attrs):
    """A field of a type that has no text."""

    pairs: dict[str, int]


dims: st.SearchStrategy[Dim] = st.integers(-99, 99) | st.builds(
    lambda c, s: Expr({((s, 1), ("tp", -1)): c, (): 3}), st.integers(1, 99) | st.just(0.5), st.sampled_from(["b", "kv"])
)
attrs = st.builds(
    Everything,
    text=st.text(),
    number=st.integers(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    dim=dims,
    numbers=st.lists(st.integers(), max_size=3).map(tuple),
    texts=st.lists(st.text(), max_size=3).map(tuple),
    dims=st.lists(dims, max_size=3).map(tuple),
)


@given(attrs)
def test_round_trip(given_attrs: Everything) -> None:
    printed = print_attrs(given_attrs)
    assert printed.startswith(" {")
    assert "\n" not in printed
    assert parse_attrs(Everything, printed[2:-1]) == given_attrs


def test_defaults_are_not_printed() -> None:
    assert print_attrs(NO_ATTRS) == ""
    assert print_attrs(Everything("x")) == ' {text="x"}'
    made = Everything('a, b="c"]', 3, 1e-9, True, symbol("seq") / symbol("cp"), (1,), ("silu", "mul"))
    assert print_attrs(made) == (
        r' {text="a, b=\"c\"]", number=3, share=1e-09, flag=true, dim=seq/cp, numbers=[1], texts=["silu", "mul"]}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('txt="x"', r"cannot read 'txt=\"x\"' as a field of Everything; allowed: text, number, share"),
        ('text="x", ??', r"cannot read '\?\?' as a field of Everything"),
        ('text="x" number=3', r"text of Everything is str, '\"x\" number=3' is not: "),
        ('text="x", text="y"', "Everything is given text twice"),
        ("", "Everything needs text"),
        ("number=3", "Everything needs text"),
        ("text=x", "text of Everything is str, 'x' is not: "),
        ("text=3", "text of Everything is str, '3' is not: a string is written in double quotes"),
        ('text="x", number=3.5', "number of Everything is int, '3.5' is not: "),
        ('text="x", share=much', "share of Everything is float, 'much' is not: "),
        ('text="x", flag=True', "flag of Everything is bool, 'True' is not: allowed: true, false"),
        ('text="x", dim=a - b', "dim of Everything is Dim, 'a - b' is not: 'a - b' is not an expression"),
        ('text="x", numbers=3', r"numbers of Everything is tuple\[int, ...\], '3' is not: a list is written \[a, b\]"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_attrs(Everything, text)


def test_a_field_without_text_is_refused() -> None:
    with pytest.raises(ParseError, match=r"pairs of Odd: fields of type dict\[str, int\] have no textual form"):
        parse_attrs(Odd, "pairs=1")


def test_an_op_without_options_takes_none() -> None:
    with pytest.raises(ParseError, match="cannot read 'a=1' as a field of Attrs; allowed: none"):
        parse_attrs(Attrs, "a=1")


@pytest.mark.parametrize("op", OPS)
def test_the_fields_of_every_op_have_a_text(op: str) -> None:
    kinds = {f.type for f in OPS[op].attrs.__dataclass_fields__.values()}
    assert kinds <= {"bool", "int", "float", "str", "AxisGroup", "Dim", "tuple[int, ...]", "tuple[str, ...]"}
