"""Small pictures for a terminal: what is drawn of each answer, and how."""
