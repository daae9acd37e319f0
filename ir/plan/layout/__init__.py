"""How layers fall on pipeline stages: partitions, placements of chunks, layouts that plans share."""
