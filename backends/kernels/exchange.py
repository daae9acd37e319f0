"""Tokens sent to the ranks of their experts and back by kernels of their own, not by a collective library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.records import dataclass
from .limits import ChipShare, ConstantRange, Overhead, Scope
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num
    from ..machine.chip import Chip

# Bytes of an element that is sent: fp8 with a scale of four bytes for 128 elements.
FP8_BYTES = 1.0 + 4.0 / 128.0


@dataclass(frozen=True, slots=True)
class ExchangeConstants:
    """Constants of one kind of exchange: `dispatch_normal`, `combine_low_latency`.

    Attributes:
        overhead_s: O, launch, notification and the empty exchange.
        link: u_l, part of the links inside of a node that it fills.
        copy: c, bytes that the SMs it has, fixed in number, send a clock together.
        pace: p, what link and copy run at over that.
        nic: u_n, part of the network between nodes that it fills.
    """

    overhead_s: Overhead
    link: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 1.5)]
    copy: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 10000.0)]
    pace: Annotated[float, ConstantRange(Scope.CHIP, 0.05, 3.0)]
    nic: ChipShare


@dataclass(frozen=True, slots=True)
class ExchangeSizes:
    """Bytes that one rank sends: to ranks of its node, and to other nodes."""

    link_bytes: Array
    nic_bytes: Array


@dataclass(frozen=True, slots=True)
class ExchangeRates:
    """Bytes a second of one rank, one direction, by the data sheet: inside of the node and between nodes."""

    link_bytes_per_s: Num
    nic_bytes_per_s: Num


@dataclass(frozen=True, slots=True)
class TokenCopies:
    """Copies of a token that a rank sends on average: to other ranks of its node, and to other nodes."""

    link: Array
    nic: Array

    def sizes(self, tokens: Array, hidden: Array, element_bytes: Array) -> ExchangeSizes:
        """Return the bytes of so many tokens a rank."""
        token = tokens * hidden * element_bytes
        return ExchangeSizes(token * self.link, token * self.nic)


def exchange_times(sizes: ExchangeSizes, rates: ExchangeRates, chip: Chip, constants: ExchangeConstants) -> KernelTimes:
    """Price exchanges in seconds: T = O + max(L / (p u_l B_l), L / (p c f), N / (u_n B_n)).

    L bytes go over links of the node, N over the network; c f is what the kernel's SMs copy in a second.

    >>> from slipstick.backends.machine.load import load_system
    >>> one, rates = ExchangeConstants(20e-6, 0.5, 1000.0, 1.0, 0.8), ExchangeRates(450e9, 50e9)
    >>> sizes = ExchangeSizes(np.array(450e6), np.array(0.0))
    >>> float(exchange_times(sizes, rates, load_system("dgx-h100").chip, one).time_s.round(6))
    0.00202
    """
    hidden = {
        "link": sizes.link_bytes / (constants.pace * constants.link * rates.link_bytes_per_s),
        "copy": sizes.link_bytes / (constants.pace * constants.copy * chip.clock_hz),
        "nic": sizes.nic_bytes / (constants.nic * rates.nic_bytes_per_s),
    }
    slowest = np.maximum.reduce(np.broadcast_arrays(*hidden.values()))
    return KernelTimes(constants.overhead_s + slowest, {"overhead": np.array(constants.overhead_s), **hidden})


def distinct_ranks(top_k: Array, ranks: Array, node: Array, groups: Array) -> TokenCopies:
    """Copies of an exchange that sends a token once to each rank that needs it, by evenly random routing.

    Of n ranks, n (1 - (1 - 1/n)^k) get a copy. Across nodes a token goes once to each node, is handed on inside of it
    to the ranks that need it, and routing may keep to some `groups` of nodes.

    >>> one_node = distinct_ranks(np.array(8.0), np.array(8.0), np.array(8.0), np.array(1.0))
    >>> round(float(one_node.link), 2), float(one_node.nic)  # 5.25 of 8 ranks get one, one in eight of them itself
    (4.59, 0.0)
    """
    nodes = np.maximum(ranks / node, 1.0)
    used = np.minimum(groups, nodes)
    reached = reached_places(used * np.minimum(node, ranks), top_k)
    return TokenCopies(reached * (1.0 - 1.0 / ranks), reached_places(used, top_k) * (1.0 - 1.0 / nodes))


def each_expert(top_k: Array, ranks: Array, node: Array) -> TokenCopies:
    """Copies of an exchange that sends a token once to each of its experts, those of one rank not joined.

    >>> spread = each_expert(np.array(8.0), np.array(32.0), np.array(8.0))
    >>> float(spread.link), float(spread.nic)
    (1.75, 6.0)
    """
    inside = np.minimum(node, ranks)
    return TokenCopies(top_k * (inside - 1.0) / ranks, top_k * (ranks - inside) / ranks)


def balanced_ranks(top_k: Array, ranks: Array, node: Array) -> TokenCopies:
    """Copies of an exchange that sends a token once to each rank, when its experts lie on as many ranks as can be.

    >>> float(balanced_ranks(np.array(8.0), np.array(4.0), np.array(72.0)).link)
    3.0
    """
    return each_expert(np.minimum(top_k, ranks), ranks, node)


def reached_places(places: Array, tries: Array) -> Array:
    """Return the expected number of places that random tries hit: p (1 - (1 - 1/p)^tries)."""
    return np.asarray(places * (1.0 - np.power(1.0 - 1.0 / places, tries)))
