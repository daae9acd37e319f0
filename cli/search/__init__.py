"""`slipstick search`, `choose` and `size`: the best of many plans, machines or deployments."""
