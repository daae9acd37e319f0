"""Layout laws of ops: which placements of operands and results go together."""
