"""The layers of a flat graph: found by the calls of modules, proven equal, folded into regions with counts."""
