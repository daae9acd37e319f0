"""Where a number comes from: formulas, inputs, sources, sensitivities, and how far to trust it."""
