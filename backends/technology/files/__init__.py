"""Files of the technology engine: its data as read, and designed chips as files of the catalogue."""
