"""One sharding rule an op: the placements of its results from those of its operands."""
