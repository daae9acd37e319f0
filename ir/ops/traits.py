"""What passes, prices and rewrites ask of an op: each question is a trait, which ops declare where they are defined."""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class Trait(StrEnum):
    """A property that several readers ask for. A backward op has the traits of its forward op, and `BACKWARD`."""

    # Its results are gradients; its first input is the gradient of the forward op's first result.
    BACKWARD = "backward"

    # What the result is made of.
    POINTWISE = "pointwise"  # each entry of the result comes from the entries at its place
    SAME_VALUES = "same values"  # the values of the operand, in another type, layout, memory or under another name
    CASTS = "casts"  # the values of the operand in another type
    QUANTISES = "quantises"  # the values of the operand in low precision, with scales
    COPIES = "copies"  # the values of the operand in another layout of memory
    RENAMES = "renames"  # the operand itself, under another name
    VIEW = "view"  # entries of the operand where they lie, under other dims
    RESHAPES = "reshapes"  # the same entries in the same order, under other dims
    PERMUTES = "permutes"  # the same dims in another order
    EXPANDS = "expands"  # dims of size 1 are repeated
    TAKES_RANGE = "takes a range"  # a part of the operand: entries of one dim that lie side by side
    JOINS = "joins"  # several operands side by side
    FILLS = "fills"  # no operand: zeros, a range, random numbers
    REDUCES = "reduces"  # dims of the operand are summed over, or looked through for their largest

    # What is computed.
    PRODUCT = "product"  # one product of two matrices, also of many at once
    ATTENDS = "attends"  # queries are weighed with keys and values are summed by these weights
    ROTATES = "rotates"  # rotary embedding
    NORMALISES_ROWS = "normalises rows"  # statistics of the last dim
    SOFTMAX = "softmax"  # exponentials along a dim, over their sum
    LINEAR = "linear"  # of a sum of operands it makes the sum of their results
    CHOOSES = "chooses"  # the largest entries and their places
    LOOKS_UP = "looks up"  # entries of its first input, of which it reads those alone whose places are given
    READS_TABLE = "reads a table"  # rows of a table of weights, by ids

    # Experts.
    HOLDS_EXPERTS = "holds experts"  # the weights of a bank of experts are among its inputs
    BANK = "bank"  # experts on rows that were distributed to them before
    ROUTES = "routes"  # deals tokens out to experts and puts their results together, all in one op
    DISPATCHES = "dispatches"  # copies each token once for each expert that it goes to
    COMBINES = "combines"  # sums what a token's experts have made

    # What stays when the call is over.
    WRITES_CACHE = "writes cache"  # its result is there for the next token
    APPENDS = "appends"  # its result is its cache, which is not copied, and what is new behind it
    ACCUMULATES = "accumulates"  # adds a gradient to the sum of the step
    UPDATES = "updates"  # makes new parameters of parameters and their gradients
    TO_HOST = "to host"  # its results are in the memory of the host
    FROM_HOST = "from host"  # its operands are in the memory of the host

    # What a collective does.
    GATHERS = "gathers"  # each rank has the shards of all behind it
    SUMS = "sums"  # over the ranks
    SUMS_EVERYWHERE = "sums everywhere"  # each rank has the sum: all of it passes twice
    SCATTERS = "scatters"  # each rank keeps its own shard
    RING = "ring"  # block by block, from neighbour to neighbour, while something else works on the block before
    EXCHANGES = "exchanges"  # another dim becomes the one that is sharded
    SENDS = "sends"  # to the next rank
    RECEIVES = "receives"  # from the previous rank


__all__ = ["Trait"]
