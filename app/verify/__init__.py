"""What is checked of a lowered graph, by kind."""
