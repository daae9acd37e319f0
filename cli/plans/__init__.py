"""Plans and spaces as files: read in the words of the flags, written, and their JSON Schemas."""
