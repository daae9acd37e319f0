"""The file of a study: Optuna's journal, one line for each trial that is asked for and two for each that is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import SlipstickError, StorageError, UsageError
from ...ir.records import dataclass
from ...ir.text.untrusted import read_bytes

if TYPE_CHECKING:
    from optuna.storages import JournalStorage
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial

# What the study is about, as a user attribute of it.
_ABOUT = "slipstick"
_NAME = "slipstick"


@dataclass(frozen=True, slots=True)
class Keeper:
    """The journal of one study, written by one process at a time; any tool of Optuna reads it."""

    path: Path
    storage: JournalStorage
    study_id: int

    @classmethod
    def open(cls, path: Path, signs: Sequence[float], about: str) -> Keeper:
        """Begin a journal, or resume it; a line that a killed process left half written is taken off.

        UsageError where it is of another study or damaged, StorageError where it cannot be written.
        """
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        with _guarded(path), silent():
            path.parent.mkdir(parents=True, exist_ok=True)
            _mend(path)
            storage = JournalStorage(JournalFileBackend(str(path)))
            studies = storage.get_all_studies()
            study_id = studies[0]._study_id if studies else storage.create_new_study(directions(signs), _NAME)
            found = storage.get_study_user_attrs(study_id).get(_ABOUT)
            if found is None and not storage.get_all_trials(study_id):
                storage.set_study_user_attr(study_id, _ABOUT, about)
                found = about
        if found != about:
            raise UsageError(
                f"'{path}' keeps another study: other axes, goals, sampler, seed, model or version; name another file, "
                "or ask for what it was asked for"
            )
        return cls(path, storage, study_id)

    def trials(self) -> list[FrozenTrial]:
        """Return every trial that is kept, in order."""
        return self.storage.get_all_trials(self.study_id)

    def ask(self, trial: FrozenTrial) -> None:
        """Keep a trial that was asked for, on one line."""
        with _guarded(self.path):
            self.storage.create_new_trial(self.study_id, trial)

    def tell(self, number: int, attributes: Mapping[str, float], values: Sequence[float]) -> None:
        """Keep what a trial was worth; until its last line is there, it was not told."""
        from optuna.trial import TrialState

        with _guarded(self.path):
            trial = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, number)
            for name, value in attributes.items():
                self.storage.set_trial_system_attr(trial, name, value)
            self.storage.set_trial_state_values(trial, TrialState.COMPLETE, values)


def directions(signs: Sequence[float]) -> list[StudyDirection]:
    """Return the directions of goals; less is better where the sign is above zero."""
    from optuna.study import StudyDirection

    return [StudyDirection.MINIMIZE if sign > 0 else StudyDirection.MAXIMIZE for sign in signs]


@contextmanager
def silent() -> Iterator[None]:
    """Keep Optuna from telling what goes well."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _mend(path: Path) -> None:
    """Take off a last line without an end, and the lock of a process that is no more."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if not path.exists():
        return
    content = read_bytes(path)
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Turn what goes wrong with the file into a message."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot keep the study in '{path}': {error}") from error
    except SlipstickError:
        raise
    except (ValueError, KeyError) as error:
        raise UsageError(f"'{path}' is damaged, or no journal of Optuna: {error}; begin a new study") from error
