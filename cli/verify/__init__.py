"""`slipstick compile --verify`: what is checked of a lowered graph."""
