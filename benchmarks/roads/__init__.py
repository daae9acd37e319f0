"""One question, one answer: the same plan on every road, over random models, plans and machines."""
