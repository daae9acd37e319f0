"""Numbers of serving engines fitted to measured requests."""
