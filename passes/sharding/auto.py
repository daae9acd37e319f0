"""auto."""
from .plans import TpPlan
from ...ir.graph import Graph
def find_plan(graph: Graph) -> TpPlan:
    raise NotImplementedError
