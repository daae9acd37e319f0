"""Text that is no graph: the error names the line and what is wrong with it."""

from collections.abc import Callable

import pytest

from slipstick.ir.errors import ParseError
from slipstick.ir.graph import Graph
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

TEXT = """\
slipstick.graph 1
graph "g" train bf16
schedule r
region r
  %0 = input "x" : bf16[batch, 4]
  %1 = matmul(%0, %0) {spec="mk,nk->mn"} : bf16[batch, 4] @up
  out "y" = %1
end
"""


def change(old: str, new: str) -> str:
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


def test_the_text_itself_is_a_graph() -> None:
    assert print_graph(parse_graph(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: a graph file starts with 'slipstick.graph 1', this starts with ''"),
        (change("graph 1", "graph 2"),
         "line 1: a graph file starts with 'slipstick.graph 1', this starts with 'slipstick.graph 2'"),
        (change('graph "g" train bf16', 'graph "g" trian bf16'), "line 2: 'trian' is not a valid Workload"),
        (change('graph "g" train bf16', 'graph "g" train bf17'), "line 2: unknown dtype 'bf17'; did you mean 'bf16'?"),
        (change('graph "g" train bf16', 'graph "g" train'), "line 2: "),
        (change('graph "g"', "graph g"), "line 2: "),
        (change("schedule r", "shedule r"), "line 3: unknown word 'shedule': shedule r"),
        (change("schedule r", ""), "line 3: unknown word '': "),
        (change("schedule r", "constraint 8 mod tp"), "line 3: not a constraint: constraint 8 mod tp"),
        (change("input", "imput"), "line 5: 'imput' is not a valid Role"),
        (change("[batch, 4] @", "[batch, 4 @"), "line 6: 'bf16[batch, 4' is not a type"),
        (change('"x" : bf16', '"x" : bf17'), "line 5: unknown dtype 'bf17'; did you mean 'bf16'?"),
        (change('"x" : bf16[batch', '"x" : bf16[batch -'),
         "line 5: 'batch -' is not an expression: cannot read '-': "),
        (change('"x" : bf16[batch, 4]', '"x" : bf16[batch, 4] <tp=Q>'), "line 5: 'Q' is not a placement; allowed: R"),
        (change("matmul", "matmull"), "line 6: unknown op 'matmull'; did you mean 'matmul'?"),
        (change('spec="mk,nk->mn"', 'spek="mk"'),
         "line 6: cannot read 'spek=\"mk\"' as a field of MatmulAttrs; allowed: spec"),
        (change(' {spec="mk,nk->mn"}', ""), "line 6: MatmulAttrs needs spec"),
        (change("%1 = matmul", "%1, %2 = matmul"), "line 6: 2 outputs have 1 types"),
        (change("%1 = matmul(%0, %0)", "matmul(%0, %0)"), "line 6: not a value, a node, an output or a gradient"),
        (change('out "y" = %1', 'out "y" = %x'), "line 7: "),
        (change("region r\n", ""), "line 4: not inside a region"),
        (change("end\n", "end\nend\n"), "line 9: not inside a region: end"),
        (change("end\n", "region s\nend\n"), "line 8: region 'r' has no end: region s"),
        (change("end\n", ""), "line 7: the text ends before region 'r' does"),
        (change("schedule r", "schedule r | s x2"), "line 8: the text ends before region 's' does"),
        ("slipstick.graph 1\n", "line 1: the text has no line 'graph'"),
    ],
)  # fmt: skip
def test_an_error_names_line_and_reason(text: str, message: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_graph(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("cut", [lambda n: n // 4, lambda n: n // 2, lambda n: n - 6, lambda n: n - 2])
def test_a_text_cut_off_anywhere_is_no_graph(train_graph: Graph, cut: Callable[[int], int]) -> None:
    text = print_graph(train_graph)
    with pytest.raises(ParseError, match=r"^line \d+: "):
        parse_graph(text[: cut(len(text))])


def test_long_lines_are_shown_in_part() -> None:
    with pytest.raises(ParseError) as error:
        parse_graph(change("schedule r", "x" * 500 + " y"))
    assert len(str(error.value)) < 700
