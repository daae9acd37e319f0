"""Rows of a framework's vocabulary: each setting stated once, read from launches and written into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from ..ir.errors import ParseError
from ..ir.records import dataclass
from .export import Export, ExportSubject, Flag, of_workload, unsaid
from .launch import Launch, Reading, Value, Word, plain

DEGREES = ("tp", "pp", "cp", "ep", "dp", "vpp")
Text: TypeAlias = str | int | float | bool | None
Words: TypeAlias = Mapping[str, Word]
Reader: TypeAlias = Callable[[Reading], None]


class SettingLeftOut(Exception):  # noqa: N818  (no error: the setting is listed as left out, or as usual)
    """A value that no word of a plan stands for."""


class CannotSay(Exception):  # noqa: N818  (no error: the line is listed as lost)
    """A value of a word that a framework has no setting for, with the reason."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Values of a setting and of its word.

    Attributes:
        read: the word's value by the setting's names; None for the default. SettingLeftOut for what no word stands for.
        write: the setting's value: empty where nothing is written, None for a flag that stands alone. CannotSay.
    """

    read: Callable[[Reading, Sequence[str]], Word | None]
    write: Callable[[Word, Words], tuple[Text, ...]]


def count(usual: int | None = None, above: int = -1, least: int = 1, most: int = 10**9) -> Codec:
    """Return the codec of a number of things: `usual` where a launch is silent, unsaid up to `above`."""

    def read(r: Reading, names: Sequence[str]) -> int | None:
        found = r.count(*names, least=least, most=most) or usual
        return None if found is None or found <= above else found

    return Codec(read, lambda value, _: (value,) if isinstance(value, int) and value > above else ())


def choice(values: Mapping[str, str], usual: str = "", idle: str = "", strict: bool = False, why: str = "") -> Codec:
    """Return the codec of one of several texts, by the word's value.

    Args:
        values: the setting's texts by the word's value; of several the first is written.
        usual: the setting's text where it is there and empty, or absent and `strict`.
        idle: the word's value that is not written, and not read: the default.
        strict: refuse unknown texts with ParseError; else they are left out.
        why: reason why no other value can be written.
    """
    words = {text: word for word, texts in values.items() for text in texts.split()}

    def read(r: Reading, names: Sequence[str]) -> Word | None:
        text = r.text(*names) or usual
        if not text:
            return None
        if (head := text.split()[0]) in words:
            return None if words[head] == idle else words[head]
        if strict:
            raise ParseError(f"{r.shown(next(filter(r.has, names)))}: '{head}' is none of {', '.join(words)}")
        raise SettingLeftOut

    def write(value: Word, _: Words) -> tuple[Text, ...]:
        if value == idle:
            return ()
        if value in values:
            return (values[str(value)].split()[0],)
        raise CannotSay(why or f"known are {', '.join(values)}")

    return Codec(read, write)


def switch(value: Word = True, idle: Word | None = None, why: str = "") -> Codec:
    """Return the codec of a switch that means one value of a word; any of its names turns it on, but `no_...`."""

    def read(r: Reading, names: Sequence[str]) -> Word | None:
        return value if any(r.flag(name) for name in names if not name.startswith("no_")) else None

    def write(said: Word, _: Words) -> tuple[Text, ...]:
        if said == value:
            return (None,)
        if idle is not None and said != idle:
            raise CannotSay(why or f"there are {idle} and {value}")
        return ()

    return Codec(read, write)


COUNT, DEGREE, ABOVE_ONE, POSITIVE = count(), count(usual=1), count(above=1), count(above=0, least=0)
SWITCH = switch()
REAL = Codec(lambda r, names: r.real(*names), lambda value, _: (value,) if isinstance(value, int | float) else ())


def is_on(words: Words, name: str) -> bool:
    """Whether a word says something: a degree above one, a recipe, a switch."""
    return words.get(name) not in (None, 0, 1, False, "none")


class Writing:
    """A plan while it is written: its words by name, the flags so far, what cannot be said."""

    def __init__(self, subject: ExportSubject) -> None:
        """Begin with nothing written."""
        self.subject = subject
        self.plan, self.family, self.words = subject.plan, subject.plan.family, subject.words
        self.flags: list[Flag] = []
        self.lost: list[str] = []

    def say(self, flag: str, value: Text = None) -> None:
        """Write a flag and its value; None for one that stands alone."""
        self.flags.append((flag, value))

    def lose(self, line: str, when: bool = True) -> None:
        """List what cannot be said, as words, a colon, why."""
        self.lost += [line] if when else []


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting that is one word of a plan, in both directions.

    Attributes:
        word: of a plan file.
        flags: its names, of which the first is written: `--a-b` of a command, `a.b` of a file.
        codec: its values.
        needs: a word without which it says nothing: a degree above one, a recipe.
        idle: what it is then understood as.
    """

    word: str
    flags: str
    codec: Codec = COUNT
    needs: str = ""
    idle: str = "of one rank"

    @property
    def words(self) -> tuple[str, ...]:
        """The words that it says."""
        return (self.word,)

    @property
    def names(self) -> tuple[str, ...]:
        """Its names without dashes."""
        return tuple(map(plain, self.flags.split()))

    def read(self, r: Reading) -> None:
        """Say the word of a launch."""
        if self.needs and not is_on(r.words, self.needs):
            r.understand(self.idle, *self.names)
            return
        try:
            r.say(self.word, self.codec.read(r, self.names), *self.names)
        except SettingLeftOut:
            return

    def write(self, w: Writing) -> None:
        """Write the setting of a plan."""
        value = w.words.get(self.word)
        if value is None or (self.needs and not is_on(w.words, self.needs)):
            return
        try:
            for text in self.codec.write(value, w.words):
                w.say(self.flags.split()[0], text)
        except CannotSay as reason:
            w.lose(f"{self.word}{'' if value is True else f' {value}'}: {reason}")


def nothing(_: object) -> None:
    """No-op."""


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that say words together: how they are read, how they are written, and names of words among them."""

    said: str
    read: Reader = nothing
    write: Callable[[Writing], None] = nothing
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that it says."""
        return tuple(self.said.split())


@dataclass(frozen=True, slots=True)
class Beside:
    """A setting with one value that goes with words that say something, and says none itself."""

    flag: str
    needs: str
    value: Text = None
    told: str = "beside others"
    words: tuple[str, ...] = ()

    def read(self, r: Reading) -> None:
        """Understand the setting."""
        r.understand(self.told, plain(self.flag))

    def write(self, w: Writing) -> None:
        """Write the setting; a degree of one says nothing."""
        if any(w.words.get(word) and (word not in DEGREES or is_on(w.words, word)) for word in self.needs.split()):
            w.say(self.flag, self.value)


@dataclass(frozen=True, slots=True)
class FixedWord:
    """A word of which a framework runs some values, and has no setting for it.

    Attributes:
        word: of a plan.
        values: those that run.
        why: what it does.
        needs: a word without which it says nothing.
    """

    word: str
    values: tuple[Word, ...]
    why: str
    needs: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The word."""
        return (self.word,)

    def read(self, r: Reading) -> None:
        """Read nothing: no setting says it."""

    def write(self, w: Writing) -> None:
        """List another value as lost."""
        value = w.words.get(self.word)
        if value is not None and value not in self.values and (not self.needs or is_on(w.words, self.needs)):
            w.lose(f"{self.word}{'' if value is True else f' {value}'}: {self.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework's vocabulary, as of one version.

    Attributes:
        name: here.
        title: its own.
        version: of the sources that all of it was read in.
        rows: its settings, in the order in which they are read and written.
        trains: whether it trains; else it serves.
        base: words that each launch of it has.
        settings: name in settings.yaml of what no word comes from; empty for its own.
        left: what a writer's user has to add.
        render: the text of a launch, of its flags.
        benchmark: the command that measures a server of it, with {model}, {isl} and {osl}.
        takes_comments: whether lines that begin with # may stand in the text.
    """

    name: str
    title: str
    version: str
    rows: tuple[SettingRow | Group | Beside | FixedWord, ...]
    trains: bool
    base: Words = field(default_factory=dict)
    settings: str = ""
    left: Callable[[ExportSubject], Iterator[str]] = lambda _: iter(())
    render: Callable[[ExportSubject, Sequence[Flag]], str] | None = None
    benchmark: str = ""
    takes_comments: bool = True

    @property
    def words(self) -> frozenset[str]:
        """All words that its rows say, or that it runs one value of."""
        return frozenset(word for row in self.rows for word in row.words)

    def read(
        self,
        given: Mapping[str, Value],
        shown: Mapping[str, str],
        num_gpus: int | None = None,
        alone: str | None = None,
    ) -> Launch:
        """Return a launch; ParseError for values that are none of a setting's.

        Args:
            given: settings by plain name.
            shown: how each stands in the launch.
            num_gpus: devices of the launch, where it or its user says.
            alone: a word that belongs to no setting: the model of a server.
        """
        r = Reading(self.name, given, shown, num_gpus, alone)
        r.words.update(self.base)
        for row in self.rows:
            row.read(r)
        return r.done(self.settings or self.name)

    def lost(self, subject: ExportSubject) -> Iterator[str]:
        """Yield what a plan says and the framework cannot, a line each: words, a colon, why."""
        yield from self._written(subject).lost

    def write(self, subject: ExportSubject) -> Export:
        """Return a plan as its launch; UsageError for a plan of another workload."""
        assert self.render is not None
        of_workload(subject, self.title, self.trains)
        w = self._written(subject)
        text, left = self.render(subject, w.flags), tuple(self.left(subject))
        return Export(self.title, self.version, text, tuple(w.lost), left, self.takes_comments, self.measured(subject))

    def measured(self, subject: ExportSubject) -> str:
        """Return the command that measures a server under the load of its plan; empty where none is known."""
        if not self.benchmark or subject.prompt is None:
            return ""
        model = subject.weights or subject.model
        load = self.benchmark.format(model=model, isl=subject.prompt, osl=subject.output)
        if subject.rate is not None:
            return f"{load} --request-rate {subject.rate:g} --num-prompts {max(int(subject.rate * 300), 100)}"
        most = subject.scheduler.max_num_seqs if subject.scheduler else 64
        return f"{load} --max-concurrency {most} --num-prompts {10 * most}"

    def flags(self, subject: ExportSubject) -> Sequence[Flag]:
        """Return the settings of a plan by the names that are written."""
        return self._written(subject).flags

    def setting(self, word: str, value: Word) -> Flag | None:
        """Return one word of a plan as a setting; None where no single one says it."""
        for row in self.rows:
            if isinstance(row, Group) and word in row.flags:
                return row.flags[word], value if isinstance(value, int | float | str) else None
            if isinstance(row, SettingRow) and row.word == word and row.flags:
                try:
                    return next(((row.flags.split()[0], text) for text in row.codec.write(value, {})), None)
                except CannotSay:
                    return None
        return None

    def _written(self, subject: ExportSubject) -> Writing:
        w = Writing(subject)
        w.lost += unsaid(subject, self.words)
        for row in self.rows:
            row.write(w)
        return w
