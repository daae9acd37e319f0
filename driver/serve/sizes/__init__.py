"""How many devices a load needs: the shapes that a replica may have, and the fewest that answer in time."""
