"""Exported programs from files: JSON parts read without torch's own reader."""
