"""Plans as files: read in the words of verbs, written, their JSON Schema, and defaults of one's own."""
