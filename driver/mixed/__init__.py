"""One step whose pipeline stages stand on machines of several kinds."""
