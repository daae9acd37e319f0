"""How sure an answer is: what it rests on, and the bands in which measurements of its like were found."""
