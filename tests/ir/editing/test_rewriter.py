"""Verbs that change a region: after each of them makers and users are those of the region to come."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slipstick import GraphBuilder
from slipstick.ir.editing.rewriter import RegionRewriter
from slipstick.ir.graph import Node, Phase, Region

VERBS = ("same", "erase", "rewire", "before", "after", "prepend", "append", "split")


@st.composite
def regions(draw: st.DrawFn) -> Region:
    build = GraphBuilder()
    readable = [build.source(name, [4]) for name in "xyz"]
    for _ in range(draw(st.integers(1, 8))):
        inputs = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=2))
        readable.append(build.node("elementwise", *inputs, attrs='fns=["add"]').key)
    build.output("result0", readable[-1])
    return build.finish()


def change(at: RegionRewriter, node: Node, verb: str) -> None:
    """Apply one verb to a node that is there; the graph need not mean anything."""
    fresh = replace(node, outputs=(at.add(at.values[node.key]),))
    if verb == "same":
        at.replace(node, node)
    elif verb == "erase":
        at.erase(node)
    elif verb == "rewire":
        at.rewire(node, {node.inputs[0]: 0})
    elif verb == "split":
        at.replace(node, fresh, replace(node, inputs=fresh.outputs))
    else:
        puts = {"before": at.insert_before, "after": at.insert_after}
        puts[verb](node, fresh) if verb in puts else (at.prepend if verb == "prepend" else at.append)(fresh)


@given(regions(), st.lists(st.tuples(st.integers(0, 99), st.sampled_from(VERBS)), max_size=8))
def test_makers_and_users_are_those_of_the_region_to_come(region: Region, verbs: list[tuple[int, str]]) -> None:
    at = RegionRewriter(region)
    for place, verb in verbs:
        nodes = at.finish().nodes
        if nodes:
            change(at, nodes[place % len(nodes)], verb)
        made = at.finish()
        for i in at.values:
            assert {n.key for n in at.users(i)} == {n.key for n in made.users.get(i, ())}
            assert at.maker(i) == made.producer.get(i)
        assert len({n.key for n in made.nodes}) == len(made.nodes)


@given(regions())
def test_a_region_that_nothing_changes_is_the_same_object(region: Region) -> None:
    at = RegionRewriter(region)
    for node in region.nodes:
        at.insert_before(node)
        at.replace(node, at.now(node))
    assert at.finish() is region


def test_what_nothing_makes_or_reads_goes_and_backward_nodes_find_their_heir() -> None:
    build = GraphBuilder()
    x, y = build.source("x", [4]), build.source("y", [4])
    first = build.node("copy", x)
    second = build.node("copy", first)
    build.at(phase=Phase.BACKWARD)
    build.output("result0", build.node("copy", y, forward=first))
    build.output("result1", second)
    at = RegionRewriter(build.finish())
    at.rewire(second, {first.key: y})
    at.erase(first, heir=second)
    region = at.finish()
    assert [v.id for v in region.values] == [y, second.key, region.nodes[-1].key]
    assert region.nodes[-1].forward == second.key


def test_copies_have_results_of_their_own_and_views_of_copies_look_at_copies() -> None:
    build = GraphBuilder()
    made = build.node("copy", build.source("x", [2, 3]))
    view = build.node("permute", made, attrs="dims=[1,0]")
    build.output("result0", view)
    at, names = RegionRewriter(build.finish()), dict[int, int]()
    at.append(*at.copies([made, view], at.region, names))
    at.outputs = (replace(at.outputs[0], value=names[view.key]),)
    region = at.finish()
    assert region.by_id[names[view.key]].storage == names[made.key] != made.key
    assert region.nodes[-1].inputs == (names[made.key],)
