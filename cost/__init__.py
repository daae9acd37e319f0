"""Node times into step time, memory, serving metrics, energy and money."""
