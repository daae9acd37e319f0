"""Laws of answers on random plans: a faster resource never slows, capacity never hurts, parts add up."""
