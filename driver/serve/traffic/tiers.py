"""Tiers that hold keys and values of earlier prompts, as people write them: `hbm=20GB,host=1TB,ssd=8TB@6GB/s`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....cost.serving.batching.steps import prefill_s
from ....cost.serving.traffic.prefixes import Reused, Tier, reused, with_reuse
from ....cost.serving.traffic.requests import Lengths
from ....cost.serving.traffic.traffic import Traffic
from ....ir.errors import InfeasibleError, UsageError
from ....ir.units import format_bytes, parse_quantity
from ..server import Server

HBM, HOST = "hbm", "host"


def tiers_of(text: str, server: Server) -> tuple[Tier, ...]:
    """Return the tiers, fastest first, for the keys and values of a server.

    Sizes are of all replicas together, rates of each GPU. `hbm` is read in place; `host` is loaded over the link of
    the machine file unless a rate is said; every other tier says its own.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = tuple(_tier(part, server) for part in parts)
    names = [tier.name for tier in found]
    if not found or len(set(names)) < len(names) or HBM in names[1:]:
        raise UsageError(f"--kv-tiers {text}: tiers by name, each once, the fastest first, as hbm=20GB,host=1TB")
    return found


def _tier(part: str, server: Server) -> Tier:
    name, equals, said = part.partition("=")
    size, at, rate = said.partition("@")
    if not equals or not name.isidentifier() or (name == HBM and at):
        raise UsageError(f"--kv-tiers {part}: NAME=SIZE[@RATE], as hbm=20GB, host=1TB or ssd=8TB@6GB/s")
    # A token's bytes on each device of a replica; a store holds those of all of them.
    per_gpu = _token_bytes(server)
    gpus = server.plan.num_gpus // server.plan.dp
    tokens = parse_quantity(size, "B").value_si / (per_gpu * gpus)
    if name == HBM:
        return Tier(name, tokens)
    link = server.system.chip.host_link
    if at:
        bytes_per_s, latency_s = parse_quantity(rate, "B/s").value_si, 0.0
    elif name == HOST and link is not None:
        bytes_per_s, latency_s = float(link.bytes_per_s) * float(link.efficiency), float(link.latency_s)
    else:
        raise UsageError(f"--kv-tiers {part}: the machine file has no rate for it: say one a GPU, {name}=SIZE@RATE")
    return Tier(name, tokens, per_gpu / bytes_per_s, latency_s)


def _token_bytes(server: Server) -> float:
    """Return the bytes that a GPU keeps of a token, in a sequence of 1,024."""
    return float(server.times.kv_bytes(np.asarray(1024.0))) / 1024.0


def with_tiers(traffic: Traffic, server: Server, text: str) -> tuple[Traffic, Server, Reused, tuple[Tier, ...]]:
    """Return traffic that finds its prefixes in tiers, and the server without the memory that is lent to them.

    A tier from which tokens come slower than they are computed is left alone, with all behind it.
    InfeasibleError where `hbm` takes more than is free.
    """
    tiers = tiers_of(text, server)
    prompt = float(max(round(float(traffic.requests.prompt.mean())), 1))
    computed_s = float(prefill_s(server.times, server.engine, Lengths(prompt, 2.0))) / prompt
    worth = tuple(_worth(tiers, computed_s))
    found = reused(traffic, worth)
    lent = sum(tier.tokens for tier in tiers if tier.name == HBM)
    per_gpu = lent * _token_bytes(server) / server.num_replicas
    free = server.times.free_bytes - per_gpu
    if free <= 0:
        raise InfeasibleError(
            f"--kv-tiers hbm: {format_bytes(per_gpu)} of each GPU, and {format_bytes(server.times.free_bytes)} are free"
        )
    return with_reuse(traffic, found), replace(server, times=replace(server.times, free_bytes=free)), found, worth


def _worth(tiers: tuple[Tier, ...], computed_s: float) -> Iterator[Tier]:
    for tier in tiers:
        if tier.token_s >= computed_s:
            return
        yield tier


def reuse_notes(found: Reused, tiers: tuple[Tier, ...], traffic: Traffic) -> Iterator[str]:
    """Say what requests found where."""
    prompt = float(traffic.requests.prompt.sum())
    parts = (f"{tier.name} {100 * float(n) / prompt:.1f} %" for tier, n in zip(tiers, found.tokens.sum(0), strict=True))
    yield (
        f"tokens of prompts found in tiers of keys and values: {100 * float(found.cached.sum()) / prompt:.1f} % "
        f"({', '.join(parts)}); loads take {float(found.fetch_s.mean()):.3g} s a request, and none waits for another"
    )
