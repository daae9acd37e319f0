"""`slipstick estimate --phase serve` and `slipstick size`: servers, their flags, and how many devices they need."""
