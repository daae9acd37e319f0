"""No module needs itself: imports make no circle, lazy ones and those for type checkers included."""

import grimp
import networkx as nx


def test_imports_make_no_circle() -> None:
    graph = grimp.build_graph("slipstick", cache_dir=None)
    imports: nx.DiGraph[str] = nx.DiGraph()
    for module in graph.modules:
        imports.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    circles = [sorted(group) for group in nx.strongly_connected_components(imports) if len(group) > 1]
    assert circles == []
