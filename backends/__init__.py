"""A system and a lowered graph into the time of every node."""
