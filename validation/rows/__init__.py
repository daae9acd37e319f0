"""Files of measurements into rows, and what their words stand for: machines, models, recipes."""
