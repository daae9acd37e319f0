"""What there is: models, machines, stacks, engines and prices, as lists and in full."""
