"""Words of plans that train a part of the weights."""
