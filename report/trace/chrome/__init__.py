"""A timeline as the events of a Chrome trace."""
