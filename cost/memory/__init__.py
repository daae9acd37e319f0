"""Memory of a device: states, kept activations, temporaries and caches, at their peak and over time."""
