"""How many of all model types of transformers are traced, whatever they read, and whether torch counts them alike."""
