"""Many machines at once: spaces of designs, their time and their money, and which of them are worth a look."""
