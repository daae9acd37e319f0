"""One description of a run for all roads: module, inputs, open sizes, loss, leaves, and the lengths it holds for."""
