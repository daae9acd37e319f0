"""One graph into another: placements, collectives, recompute, fusion."""
