"""A stack for the user's own machine, from one run that was measured and its prediction."""
