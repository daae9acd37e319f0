"""What slipstick itself costs: time and memory of tracing, lowering and estimating, as one JSON document."""
