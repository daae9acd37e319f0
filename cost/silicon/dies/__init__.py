"""Dies: wafers, yields, tests, pads, and what cannot be made."""
