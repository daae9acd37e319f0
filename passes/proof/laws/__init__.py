"""Index maps of ops: which entry of a result comes from which entries of its operands."""
