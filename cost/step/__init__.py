"""Node times into a step: stages, what is exposed and what hides, added up for a table of plans."""
