"""Configs of transformers: names, files, checks, published precision, and the class that is built."""
