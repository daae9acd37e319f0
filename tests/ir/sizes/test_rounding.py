"""Sizes rounded down, and the larger or smaller of two: equal to Python's own on whole numbers, however simplified."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import ParseError
from slipstick.ir.sizes.expr import Dim, as_expr, symbol
from slipstick.ir.sizes.expr_text import parse_expr
from slipstick.ir.sizes.exprtable import ExprTable
from slipstick.ir.sizes.rounding import ceil_div, floor_div, larger, modulo, smaller

SEQ, BATCH = symbol("seq"), symbol("batch")
SMALL, DIVISORS, LENGTHS = st.integers(-40, 40), st.integers(1, 24), st.integers(1, 500)


def value(size: Dim, seq: int, batch: int = 1) -> float:
    return float(as_expr(size).evaluate({"seq": float(seq), "batch": float(batch)}))


@given(SMALL, SMALL, SMALL, DIVISORS, LENGTHS, LENGTHS)
def test_a_floor_is_that_of_whole_numbers(a: int, b: int, c: int, n: int, seq: int, batch: int) -> None:
    above = SEQ * a + BATCH * SEQ * b + c
    plain = a * seq + b * batch * seq + c
    assert value(floor_div(above, n), seq, batch) == plain // n
    assert value(floor_div(above, -n), seq, batch) == plain // -n
    assert value(ceil_div(above, n), seq, batch) == -(-plain // n)
    assert value(modulo(above, n), seq, batch) == plain % n


@given(st.lists(st.tuples(SMALL, DIVISORS), min_size=1, max_size=5), LENGTHS)
def test_strided_convolutions_one_after_another_are_one_floor(layers: list[tuple[int, int]], seq: int) -> None:
    size, plain = SEQ, seq
    for constant, stride in layers:
        size, plain = as_expr(floor_div(size + constant, stride)), (plain + constant) // stride
    assert value(size, seq) == plain
    assert str(size).count("floor") <= 1


@given(SMALL, SMALL, LENGTHS)
def test_the_larger_and_the_smaller_of_two(a: int, b: int, seq: int) -> None:
    for other in (SEQ * a + b, SEQ + b, as_expr(b)):
        plain = int(value(other, seq))
        assert value(larger(SEQ, other), seq) == max(seq, plain)
        assert value(smaller(SEQ, other), seq) == min(seq, plain)


@given(SMALL, SMALL, DIVISORS, LENGTHS)
def test_what_is_rounded_follows_a_substitution(a: int, b: int, n: int, seq: int) -> None:
    size = as_expr(floor_div(SEQ * a + b, n)) * 3 + as_expr(smaller(SEQ, 128))
    halved = size.substitute({"seq": symbol("kv") * 2 + 1})
    assert halved.evaluate({"kv": float(seq)}) == value(size, 2 * seq + 1)
    assert size.substitute({"seq": seq}) == value(size, seq)
    assert halved.symbols <= {"kv"}


@given(SMALL, SMALL, DIVISORS, LENGTHS)
def test_it_is_read_as_it_is_printed(a: int, b: int, n: int, seq: int) -> None:
    size = as_expr(larger(floor_div(SEQ * a + BATCH + b, n), BATCH * SEQ)) * 4 * BATCH * BATCH + 1
    size = size + as_expr(floor_div(SEQ * SEQ, BATCH + 1)) / symbol("tp")
    assert parse_expr(str(size)) == size
    assert ", " not in str(size)
    again = pickle.loads(pickle.dumps(size))
    assert again == size
    assert again.symbols == size.symbols
    assert again.evaluate({"seq": float(seq), "batch": 2.0, "tp": 2.0}) == size.evaluate(
        {"seq": float(seq), "batch": 2.0, "tp": 2.0}
    )


def test_equal_sizes_are_one_symbol_however_they_came_about() -> None:
    once = floor_div(SEQ - 7, 4)
    twice = floor_div(as_expr(floor_div(SEQ - 3, 2)) - 2, 2)
    assert once == twice
    assert as_expr(once) - as_expr(twice) == 0
    assert floor_div(SEQ * 6, 4) == floor_div(SEQ * 3, 2)
    assert floor_div(SEQ * 16 + 5, 16) == SEQ


def test_many_plans_are_evaluated_at_once() -> None:
    table = ExprTable.of([as_expr(floor_div(SEQ + 127, 128)) * BATCH, as_expr(smaller(SEQ, 200))])
    assert table.symbols == {"seq", "batch"}
    found = table.evaluate({"seq": np.array([1.0, 128.0, 129.0]), "batch": np.array([2.0, 3.0, 5.0])}, 3)
    assert found.tolist() == [[2.0, 3.0, 10.0], [1.0, 128.0, 129.0]]


@pytest.mark.parametrize("text", ["floor(seq/16", "floor(seq)", "round(seq/16)", "floor(seq/16)seq", "max(seq/2)"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_expr(text)
