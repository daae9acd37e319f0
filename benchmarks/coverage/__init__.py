"""How much of transformers is traced, and whether the graphs agree with torch's own count of the same models."""
