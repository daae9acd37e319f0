"""`slipstick search`: what may be chosen, as flags or a file, and what was found."""
