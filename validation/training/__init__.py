"""Steps of training runs: a row of a table becomes a model, a plan, a machine and a time; predictions stand beside."""
