"""ATen operators to the ops of the IR: one table, and the flat graph that they write."""
