"""No module needs itself: imports make no circle, lazy ones and those for type checkers included."""

import grimp
import networkx as nx

# Flags, their plan file and the verb that they belong to still need one another; nothing may join them.
KNOWN = {
    f"slipstick.cli.{name}"
    for name in (
        "draft_flags", "estimate", "flags", "options", "plan_file", "plan_schema", "pool_flags", "prepare", "run_flags",
        "serve", "serve_checks", "serve_flags",
    )
}  # fmt: skip


def test_imports_make_no_circle() -> None:
    graph = grimp.build_graph("slipstick", cache_dir=None)
    imports: nx.DiGraph[str] = nx.DiGraph()
    for module in graph.modules:
        imports.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    circles = [group for group in nx.strongly_connected_components(imports) if len(group) > 1]
    assert [sorted(group) for group in circles if not group <= KNOWN] == []
