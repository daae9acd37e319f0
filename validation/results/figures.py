"""Outcomes gathered by what people ask for: a data set, a kind of kernel, a part; and the accuracy of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...ir.records import dataclass
from .outcomes import Outcome, Part
from .statistics import Accuracy, Confusion

Key = tuple[str, ...]
# What a line may cover: the rows that judge, those that were fitted, and everything with a prediction.
ALL = "all"


@dataclass(frozen=True, slots=True)
class Figures:
    """The accuracy of some rows: of all that have a prediction, and of those that judge and those that were fitted."""

    whole: Accuracy | None
    parts: Mapping[Part, Accuracy]
    num_excluded: int
    num_skipped: int
    labels: Confusion | None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Figures:
        """Summarise outcomes."""
        parts = {part: _accuracy(o for o in outcomes if o.part is part) for part in (Part.JUDGED, Part.FIT)}
        labels = [(o.label.ran, o.label.fits) for o in outcomes if o.label is not None]
        return cls(
            _accuracy(outcomes),
            {part: found for part, found in parts.items() if found is not None},
            sum(o.part is Part.EXCLUDED for o in outcomes),
            sum(o.part is Part.SKIPPED for o in outcomes),
            Confusion.of(labels) if labels else None,
        )

    def lines(self) -> Iterator[tuple[str, Accuracy]]:
        """Yield the parts that are worth a line: where all rows are of one part, it alone."""
        for part, found in self.parts.items():
            yield part.value, found
        if self.whole is not None and self.whole.num not in {a.num for a in self.parts.values()}:
            yield ALL, self.whole


def by(outcomes: Iterable[Outcome], key: Callable[[Outcome], Key]) -> dict[Key, list[Outcome]]:
    """Gather outcomes that share a key, in the order in which the keys come."""
    found: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(key(outcome), []).append(outcome)
    return found


def by_dataset(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Gather by data set."""
    return {name: of for (name,), of in by(outcomes, lambda o: (o.row.dataset,)).items()}


def by_kernel(outcomes: Iterable[Outcome]) -> dict[Key, list[Outcome]]:
    """Gather what is predicted by data set, system and kind, of served requests also by engine."""
    return by((o for o in outcomes if o.has_error), lambda o: (o.row.dataset, o.system, o.shown_kind))


def by_range(outcomes: Iterable[Outcome]) -> dict[Key, list[Outcome]]:
    """Gather what is predicted as a range and has a measurement, in the same way."""
    ranges = (o for o in outcomes if o.is_range and o.part in (Part.JUDGED, Part.FIT))
    return by(ranges, lambda o: (o.row.dataset, o.system, o.shown_kind))


def by_kind(outcomes: Iterable[Outcome]) -> dict[Key, list[Outcome]]:
    """Gather what is predicted by kind of table and kind of kernel, over all data sets."""
    return by((o for o in outcomes if o.has_error), lambda o: (o.table, o.kind))


def worst_first(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Sort what has an error by its size, the greatest first."""
    return sorted((o for o in outcomes if o.has_error), key=lambda o: -abs(o.error))


def farther_than(outcomes: Iterable[Outcome], share: float | None) -> list[Outcome]:
    """Return what is off by more than a share and not excluded, by data set and then the greatest error first."""
    if share is None:
        return []
    far = [o for o in worst_first(outcomes) if abs(o.error) > share and o.part is not Part.EXCLUDED]
    return [o for of in by_dataset(far).values() for o in of]


def _accuracy(outcomes: Iterable[Outcome]) -> Accuracy | None:
    errors = [o.error for o in outcomes if o.has_error]
    return Accuracy.of(errors) if errors else None
