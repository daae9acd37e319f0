"""Models of transformers that read no tokens, or not tokens alone: pictures, films, sound, series."""
