"""Products, weights and caches in low precision, in training and in inference."""
