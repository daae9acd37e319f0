"""Files of machines: read, laid over one another, overridden, checked, with all faults at once."""
