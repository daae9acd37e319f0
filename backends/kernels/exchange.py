"""Tokens sent to the ranks of their experts and back by kernels of their own, not by a collective library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .limits import ChipShare, Overhead
from .terms import Array, KernelTimes

# Bytes of an element that is sent: fp8 with a scale of four bytes for 128 elements.
FP8_BYTES = 1.0 + 4.0 / 128.0


@dataclass(frozen=True, slots=True)
class ExchangeConstants:
    """Constants of one kind of exchange: `dispatch_normal`, `combine_low_latency`.

    Attributes:
        overhead_s: O, launch, notification and the empty exchange.
        link: part of the links inside of a node that it fills.
        nic: the same of the network between nodes.
    """

    overhead_s: Overhead
    link: ChipShare
    nic: ChipShare


@dataclass(frozen=True, slots=True)
class ExchangeSizes:
    """Bytes that one rank sends: to ranks of its node, and to other nodes."""

    link_bytes: Array
    nic_bytes: Array


@dataclass(frozen=True, slots=True)
class ExchangeRates:
    """Bytes a second of one rank, one direction, by the data sheet: inside of the node and between nodes."""

    link_bytes_per_s: float
    nic_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of a token that a rank sends on average: to other ranks of its node, and to other nodes."""

    link: Array
    nic: Array

    def sizes(self, tokens: Array, hidden: Array, element_bytes: Array) -> ExchangeSizes:
        """Return the bytes of so many tokens a rank."""
        token = tokens * hidden * element_bytes
        return ExchangeSizes(token * self.link, token * self.nic)


def exchange_times(sizes: ExchangeSizes, rates: ExchangeRates, constants: ExchangeConstants) -> KernelTimes:
    """Price exchanges in seconds: T = O + max(link bytes / (u_l B_l), nic bytes / (u_n B_n)).

    >>> one = ExchangeConstants(20e-6, 0.5, 0.8)
    >>> times = exchange_times(ExchangeSizes(np.array(450e6), np.array(0.0)), ExchangeRates(450e9, 50e9), one)
    >>> float(times.time_s.round(6))
    0.00202
    """
    link = sizes.link_bytes / (constants.link * rates.link_bytes_per_s)
    nic = sizes.nic_bytes / (constants.nic * rates.nic_bytes_per_s)
    terms = {"overhead": np.array(constants.overhead_s), "link": link, "nic": nic}
    return KernelTimes(constants.overhead_s + np.maximum(link, nic), terms)


def distinct_ranks(top_k: Array, ranks: Array, node: Array, groups: Array) -> Copies:
    """Copies of an exchange that sends a token once to each rank that needs it, by evenly random routing.

    Of n ranks, n (1 - (1 - 1/n)^k) get a copy. Across nodes a token goes once to each node, is handed on inside of it
    to the ranks that need it, and routing may keep to some `groups` of nodes.

    >>> one_node = distinct_ranks(np.array(8.0), np.array(8.0), np.array(8.0), np.array(1.0))
    >>> round(float(one_node.link), 2), float(one_node.nic)  # 5.25 of 8 ranks get one, one in eight of them itself
    (4.6, 0.0)
    """
    nodes = np.maximum(ranks / node, 1.0)
    used = np.minimum(groups, nodes)
    reached = _hit(used * np.minimum(node, ranks), top_k)
    return Copies(reached * (1.0 - 1.0 / ranks), _hit(used, top_k) * (1.0 - 1.0 / nodes))


def each_expert(top_k: Array, ranks: Array, node: Array) -> Copies:
    """Copies of an exchange that sends a token once to each of its experts, those of one rank not joined.

    >>> spread = each_expert(np.array(8.0), np.array(32.0), np.array(8.0))
    >>> float(spread.link), float(spread.nic)
    (1.75, 6.0)
    """
    inside = np.minimum(node, ranks)
    return Copies(top_k * (inside - 1.0) / ranks, top_k * (ranks - inside) / ranks)


def balanced_ranks(top_k: Array, ranks: Array, node: Array) -> Copies:
    """Copies of an exchange that sends a token once to each rank, when its experts lie on as many ranks as can be.

    >>> float(balanced_ranks(np.array(8.0), np.array(4.0), np.array(72.0)).link)
    3.0
    """
    return each_expert(np.minimum(top_k, ranks), ranks, node)


def _hit(places: Array, tries: Array) -> Array:
    """Expected number of places that random tries hit."""
    return np.asarray(places * (1.0 - (1.0 - 1.0 / places) ** tries))
