"""Software of a machine: stacks and serving engines, and which of their numbers a fit may move."""
