"""Numbers of software stacks fitted to measured training steps."""
