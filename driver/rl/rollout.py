"""Rollouts: answers to the prompts of a step, all sent at once, request by request on the replicas of an engine."""

from __future__ import annotations

import numpy as np

from ...cost.serving.batching.offline import offline
from ...cost.serving.batching.times import Array
from ...cost.serving.simulate.run import Pool, simulate
from ...cost.serving.traffic.requests import Lengths
from ...cost.serving.traffic.sizes import Index, Length, Requests
from ...cost.serving.traffic.traffic import Traffic
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..serve.server import Server

# Tokens of a block of a cache, of which whole ones are shared by the answers to one prompt.
_BLOCK = 16
# Halvings that find the mean before long answers are cut: a millionth of it.
_HALVINGS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What the rollouts of a step ask for.

    Attributes:
        prompts: prompts a step.
        group: answers to each of them.
        prompt: tokens of a prompt.
        answer: tokens of an answer; their mean is that of answers as they are, cut ones included.
        longest: tokens at which prompt and answer are cut.
        seed: of the lengths.
    """

    prompts: int
    group: int
    prompt: Length
    answer: Length
    longest: int
    seed: int = 0

    @property
    def samples(self) -> int:
        """Answers a step."""
        return self.prompts * self.group

    def requests(self) -> Requests:
        """Draw the lengths; the first answer to a prompt computes it, the others find its whole blocks in the cache.

        UsageError for prompts that leave no room for an answer, and answers longer than the room.
        """
        random = np.random.default_rng(self.seed)
        prompt = np.repeat(self.prompt.draw(random, self.prompts), self.group)
        room = self.longest - prompt
        if (room < 1).any():
            told = f"prompts of {int(prompt.max()):,} tokens leave no room for an answer in {self.longest:,}"
            raise UsageError(f"{told}: raise the longest sequence")
        answer = _cut(self.answer.draw(random, self.samples), room)
        first = np.arange(self.samples) % self.group == 0
        whole = np.minimum(prompt // _BLOCK * _BLOCK, prompt - 1)
        return Requests(prompt, answer, np.where(first, 0, whole))


def _cut(drawn: Index, room: Index) -> Index:
    """Cut answers at the room, stretched so that their mean stays as drawn."""
    mean = float(drawn.mean())
    if mean > float(room.mean()):
        raise UsageError(f"answers of {mean:,.0f} tokens on average are longer than the {int(room.min()):,} there are")
    low, high = 1.0, float(room.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if float(_scaled(drawn, middle, room).mean()) < mean else (low, middle)
    return _scaled(drawn, low, room)


def _scaled(drawn: Index, factor: float, room: Index) -> Index:
    scaled: Index = np.minimum(np.maximum(np.rint(drawn * factor), 1), room).astype(np.int64)
    return scaled


@dataclass(frozen=True, slots=True)
class RolloutTime:
    """How long the rollouts of a step take.

    Attributes:
        requests: tokens of each.
        all_s: until the last answer is there.
        even_s: the same for as many answers of the mean length: what is more is waiting for stragglers.
        finished_s: when each answer is there.
        batch_mean: sequences that a replica runs, over the whole time.
        replicas: that answer.
    """

    requests: Requests
    all_s: float
    even_s: float
    finished_s: Array
    batch_mean: float
    replicas: int

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return int((self.requests.prompt + self.requests.output).sum())

    @property
    def mean_tokens(self) -> float:
        """Tokens of a sample, prompt and answer."""
        return self.tokens / len(self.requests.prompt)

    @property
    def straggler_share(self) -> float:
        """Share of the time behind the answer of the nine tenths that came first."""
        return 1.0 - float(np.quantile(self.finished_s, 0.9)) / self.all_s


def rollout_time(server: Server, rollouts: Rollouts) -> RolloutTime:
    """Run the rollouts of a step on all replicas of a server: each answer goes to the replica with fewest in flight.

    InfeasibleError where an answer does not fit into the cache of a replica.
    """
    requests = rollouts.requests()
    traffic = Traffic(np.zeros(rollouts.samples), requests)
    found = simulate(traffic, Pool(server.times, server.engine, server.num_replicas))
    return RolloutTime(
        requests,
        found.duration_s,
        _even_s(server, requests),
        found.served.finish_s,
        found.fullness[0].batch_mean,
        server.num_replicas,
    )


def _even_s(server: Server, requests: Requests) -> float:
    """Time of as many answers that are all as long as the mean: in closed form, see `cost.serving.batching.offline`."""
    prompt, answer = (max(round(float(part.mean())), 1) for part in (requests.prompt, requests.output))
    cached = min(round(float(requests.cached.mean())), prompt - 1)
    each = -(-len(requests.prompt) // server.num_replicas)
    found = offline(server.times, server.engine, float(each), Lengths(prompt, answer, cached))
    return each / float(found.requests_per_s)
