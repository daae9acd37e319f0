"""Work that asks for the times of pipelines in between: alone, or many pieces of it side by side.

A piece of such work is a generator: it yields `Pipelines`, is sent what `Paced` they have, and returns its result. So
the tables of many families of plans have their pipelines run together, though each is a table of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

import numpy as np

from .pipeline import Paced, Pipelines, pipeline_times

T = TypeVar("T")


def alone(work: Generator[Pipelines, Paced, T]) -> T:
    """Do one piece of work, and return its result."""
    return together([work])[0]


def together(pieces: Iterable[Generator[Pipelines, Paced, T]]) -> list[T]:
    """Do pieces of work side by side, and return their results in order; bit for bit those of each `alone`.

    What one raises ends all. Numbers that are beyond any are left to those who look at the result.
    """
    works = list(pieces)
    results: dict[int, T] = {}
    answers: dict[int, Paced | None] = dict.fromkeys(range(len(works)))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        while answers:
            asked: dict[int, Pipelines] = {}
            for k, answer in answers.items():
                try:
                    asked[k] = works[k].send(answer) if answer is not None else next(works[k])
                except StopIteration as stop:
                    results[k] = stop.value
            answers = dict(zip(asked, pipeline_times(list(asked.values())), strict=True))
    return [results[k] for k in range(len(works))]
