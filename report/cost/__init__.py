"""What a system and its steps cost, taken apart."""
