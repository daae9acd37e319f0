"""A plan in the words of the frameworks that run it: one file a framework."""
