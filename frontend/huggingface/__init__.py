"""Models of transformers: their configs, and how they are recorded."""
