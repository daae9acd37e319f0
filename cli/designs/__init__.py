"""`slipstick design` and `slipstick sweep`: chips from budgets, and designs by the thousand."""
