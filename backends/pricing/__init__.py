"""A lowered graph into times: compiled to tables, bound to a system, priced for many plans at once."""
