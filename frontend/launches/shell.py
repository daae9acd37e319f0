"""A shell script as the commands that it would run: variables, arrays, continuations and simple conditions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.errors import ParseError

# Stands in a word in the place of what only a shell could know, with what it was; no text of a user has it.
UNKNOWN = "\0"
_MOST_CHARS, _MOST_WORDS = 4_000_000, 200_000
_NAME = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(rf"(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?({_NAME})(\+?)=(.*)", re.DOTALL)
_ARRAY = re.compile(rf"(?:export\s+|local\s+|declare\s+-a\s+)?({_NAME})(\+?)=\(")
_EXPANDED = re.compile(
    rf"\$\(\((?P<sum>[^()]*)\)\)|\$\((?P<command>(?:[^()]|\([^()]*\))*)\)|`(?P<ticks>[^`]*)`"
    rf"|\$\{{(?P<braced>[^{{}}]*)\}}|\$(?P<plain>{_NAME}|[0-9@*#?$!])"
)
_WHOLE_ARRAY = re.compile(rf"\$\{{({_NAME})\[[@*]\]\}}")
_BRACED = re.compile(rf"({_NAME}|[0-9@*]+)(?:\[[@*]\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_SUM = re.compile(r"[0-9+\-*/%() ]+")
_TEST = re.compile(r"\[\[?\s+(.*?)\s+\]\]?$", re.DOTALL)
_UNSET = re.compile(rf"{UNKNOWN}\$\{{?\w+\}}?{UNKNOWN}")
_REDIRECTED = re.compile(r"(?<=\s)(?:\d?>&\d|&?\d?>>?\s*[^\s;|&]+|<\s*[^\s;|&]+)(?=\s|$)")
_ENDS = ("&&", "||", ";", "|", "&")


@dataclass(frozen=True, slots=True)
class Command:
    """Words of one command, and the line on which it begins."""

    words: tuple[str, ...]
    line: int


@dataclass(slots=True)
class _Script:
    """What is known so far: variables by name, words of arrays, and for each open condition whether it is met."""

    known: dict[str, str]
    arrays: dict[str, list[str]] = field(default_factory=dict)
    taken: list[bool | None] = field(default_factory=list)

    def runs(self) -> bool:
        """Whether lines here are run: no open condition is known to fail."""
        return all(one is not False for one in self.taken)


def commands(text: str, environment: Mapping[str, str] | None = None) -> list[Command]:
    r"""Return the commands of a script with their variables filled in, in order.

    Nothing is run: what cannot be known otherwise stands as an unknown in its word, see `UNKNOWN`. Both branches of a
    condition that cannot be known are read, in order.

    Args:
        text: the script, or one command line.
        environment: variables that are set outside of it.

    Raises:
        ParseError: a quote or a bracket that never closes, with its line; more text than any script has.

    >>> [c.words for c in commands('TP=8\nARGS=(--tp $TP --pp ${PP:-2})\nrun "${ARGS[@]}" \\\n  --sp')]
    [('run', '--tp', '8', '--pp', '2', '--sp')]
    """
    if len(text) > _MOST_CHARS:
        raise ParseError(f"a script of {len(text):,} characters: at most {_MOST_CHARS:,} are read")
    script = _Script(dict(environment or {}))
    found: list[Command] = []
    for line, logical in _logical_lines(text):
        found += _read(script, logical, line)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those joined that a backslash, an open quote or an open bracket of an array continues."""
    lines = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        first, whole = at + 1, _without_comment(lines[at])
        while at + 1 < len(lines) and (ends := _is_open(whole)):
            at += 1
            more = _without_comment(lines[at])
            whole = whole.rstrip()[:-1] + " " + more.lstrip() if ends == "\\" else f"{whole}\n{more}"
        if _is_open(whole) not in ("", "\\"):
            raise ParseError(f"line {first}: a quote or a bracket that never closes")
        at += 1
        if whole.strip():
            yield first, whole.strip().rstrip("\\")


def _without_comment(line: str) -> str:
    """Take a comment off that begins a line or follows a blank outside of quotes."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
    return line


def _is_open(text: str) -> str:
    """Return what is open at the end of a text: a quote, the bracket of an array, a backslash; empty for nothing."""
    if text.rstrip(" \t").endswith("\\") and not text.rstrip(" \t").endswith("\\\\"):
        return "\\"
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    if quote:
        return quote
    return "(" if _ARRAY.match(text.strip()) and not text.rstrip().endswith(")") else ""


def _read(script: _Script, text: str, line: int) -> Iterator[Command]:
    """Read one logical line: what it sets, the condition that it opens or ends, the commands that it runs."""
    if _ARRAY.match(text):
        if script.runs():
            _set_array(script, text, line)
        return
    for part in _parts(text, line):
        word = part.split(None, 1)[0] if part.split() else ""
        if word in ("if", "elif", "else", "fi", "then", "do", "done", "for", "while", "case", "esac", "{", "}"):
            yield from _control(script, word, part[len(word) :].strip(), line)
        elif script.runs():
            yield from _simple(script, part, line)


def _control(script: _Script, word: str, rest: str, line: int) -> Iterator[Command]:
    """Open, turn or end a condition; bodies of loops are read once."""
    if word == "if":
        script.taken.append(_is_met(script, rest))
    elif word in ("elif", "else") and script.taken:
        before = script.taken.pop()
        met = _is_met(script, rest) if word == "elif" else True
        script.taken.append(False if before is True else None if before is None else met)
    elif word == "fi" and script.taken:
        script.taken.pop()
    elif word in ("then", "do", "else", "{") and rest and script.runs():
        yield from _read(script, rest, line)


def _is_met(script: _Script, test: str) -> bool | None:
    """Whether a test of texts or whole numbers holds; None where only a shell could know."""
    match = _TEST.match(test.strip())
    if match is None:
        return None
    # A variable that nobody set is empty, as in a shell; what a command prints is not known.
    words = [_UNSET.sub("", word) for word in _words(script, match[1])]
    if any(UNKNOWN in word for word in words):
        return None
    match words:
        case ["-z", one]:
            return not one
        case ["-n", one] | [one]:
            return bool(one)
        case ["-z"]:
            return True
        case ["-n"] | []:
            return False
        case [a, "=" | "==", b]:
            return a == b
        case [a, "!=", b]:
            return a != b
        case [a, "-eq" | "-ne" | "-gt" | "-ge" | "-lt" | "-le" as how, b] if a.isdigit() and b.isdigit():
            x, y = int(a), int(b)
            return {"-eq": x == y, "-ne": x != y, "-gt": x > y, "-ge": x >= y, "-lt": x < y, "-le": x <= y}[how]
        case _:
            return None


def _parts(text: str, line: int) -> Iterator[str]:
    """Yield the commands of a line apart; quotes and brackets keep what is inside together."""
    quote, depth, start, at = "", 0, 0, 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "({":
            depth += text[at - 1 : at] == "$" or depth > 0
        elif char in ")}" and depth:
            depth -= 1
        elif char == "&" and ">" in (text[at - 1 : at], text[at + 1 : at + 2]):
            # Part of `2>&1` or `&>file`.
            at += text[at + 1 : at + 2] == ">"
        elif not depth and (end := next((e for e in _ENDS if text.startswith(e, at)), None)):
            yield text[start:at].strip()
            at += len(end) - 1
            start = at + 1
        elif not depth and char == "\n":
            yield text[start:at].strip()
            start = at + 1
        at += 1
    if quote:
        raise ParseError(f"line {line}: a quote that never closes")
    yield text[start:].strip()


def _simple(script: _Script, text: str, line: int) -> Iterator[Command]:
    """Read an assignment, or a command with assignments before it."""
    match = _ASSIGNED.fullmatch(text)
    try:
        # An assignment is one word, before anything is filled in.
        is_set = match is not None and len(shlex.split(_EXPANDED.sub("x", match[3]))) <= 1
    except ValueError as error:
        raise ParseError(f"line {line}: {error}") from None
    if match is not None and is_set:
        value = " ".join(_words(script, match[3], split=False))
        script.known[match[1]] = script.known.get(match[1], "") + value if match[2] else value
        return
    words = _words(script, _REDIRECTED.sub(" ", text))
    if len(words) > _MOST_WORDS:
        raise ParseError(f"line {line}: a command of {len(words):,} words: at most {_MOST_WORDS:,} are read")
    while words and (set_here := _ASSIGNED.fullmatch(words[0])):
        script.known[set_here[1]] = set_here[3]
        words = words[1:]
    if words:
        yield Command(tuple(words), line)


def _set_array(script: _Script, text: str, line: int) -> None:
    match = _ARRAY.match(text)
    assert match is not None  # the caller saw it
    words = _words(script, text[match.end() : text.rindex(")")].replace("\n", " "))
    if len(words) > _MOST_WORDS:
        raise ParseError(f"line {line}: an array of {len(words):,} words: at most {_MOST_WORDS:,} are read")
    name = match[1]
    script.arrays[name] = [*script.arrays.get(name, []), *words] if match[2] else words


def _words(script: _Script, text: str, split: bool = True) -> list[str]:
    """Expand and split a text: what is expanded outside of quotes is split at blanks, in single quotes nothing is."""
    quote, at, start = "", 0, 0
    pieces: list[tuple[str, str]] = []
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif not quote and char in "'\"":
            pieces.append((quote, text[start:at]))
            quote, start = char, at + 1
        elif quote and char == quote:
            pieces.append((quote, text[start:at]))
            quote, start = "", at + 1
        at += 1
    pieces.append((quote, text[start:]))
    return _joined(script, pieces, split)


def _joined(script: _Script, pieces: Sequence[tuple[str, str]], split: bool) -> list[str]:
    """Put quoted and bare pieces together into words."""
    words: list[str] = []
    is_open = False
    for quote, text in pieces:
        if quote == '"' and (array := _WHOLE_ARRAY.fullmatch(text)) is not None:
            words, is_open = [*words, *script.arrays.get(array[1], [])], False
            continue
        whole = text if quote == "'" else _expanded(script, text)
        if quote or not split:
            whole = re.sub(r"\\([\"$`\\])", r"\1", whole) if quote == '"' else whole
            words = [*words[:-1], words[-1] + whole] if is_open else [*words, whole]
            is_open = True
            continue
        parts = re.sub(r"\\(.)", r"\1", whole).split()
        if parts and is_open and not whole[:1].isspace():
            words[-1] += parts[0]
            parts = parts[1:]
        words += parts
        is_open = bool(whole) and not whole[-1].isspace() and bool(words) if whole else is_open
    return words


def _expanded(script: _Script, text: str) -> str:
    """Fill in variables, sums and defaults; what only a shell could know becomes an unknown."""

    def filled(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return _sum(script, match["sum"])
        if match["plain"] is not None:
            return _value(script, match["plain"], match[0])
        if match["braced"] is None:
            return f"{UNKNOWN}{match[0]}{UNKNOWN}"
        inner = _BRACED.fullmatch(match["braced"])
        if inner is None:
            return f"{UNKNOWN}{match[0]}{UNKNOWN}"
        name, how, other = inner.groups()
        if "[" in match["braced"]:
            return " ".join(script.arrays.get(name, []))
        has = name in script.known and (not (how or "").startswith(":") or script.known[name] != "")
        if how is None or how[-1] == "?":
            return _value(script, name, match[0])
        if how[-1] == "+":
            return _expanded(script, other) if has else ""
        return script.known[name] if has else _expanded(script, other)

    return _EXPANDED.sub(filled, text)


def _value(script: _Script, name: str, shown: str) -> str:
    if name in script.known:
        return script.known[name]
    return " ".join(script.arrays[name]) if name in script.arrays else f"{UNKNOWN}{shown}{UNKNOWN}"


def _sum(script: _Script, text: str) -> str:
    """Work a sum of whole numbers out, as `$((NODES * GPUS))`."""
    names = re.sub(rf"\$?\{{?({_NAME})\}}?", lambda m: script.known.get(m[1], UNKNOWN), text)
    shown = f"{UNKNOWN}$(({text})){UNKNOWN}"
    if not _SUM.fullmatch(names) or len(names) > 200 or "**" in names:
        return shown
    try:
        return str(_worked_out(names.replace(" ", "")))
    except (ValueError, ZeroDivisionError):
        return shown


def _worked_out(text: str) -> int:
    """Evaluate + - * / % and brackets over whole numbers, without running any code.

    >>> _worked_out("2*(3+4)/7")
    2
    """
    tokens = re.findall(r"\d+|[-+*/%()]", text)

    def product() -> int:
        left = atom()
        while tokens and tokens[0] in "*/%":
            operator, right = tokens.pop(0), atom()
            left = left * right if operator == "*" else left // right if operator == "/" else left % right
        return left

    def atom() -> int:
        if not tokens:
            raise ValueError(text)
        token = tokens.pop(0)
        if token == "(":
            inner = total()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError(text)
            return inner
        return -atom() if token == "-" else int(token)

    def total() -> int:
        left = product()
        while tokens and tokens[0] in "+-":
            left = left + product() if tokens.pop(0) == "+" else left - product()
        return left

    found = total()
    if tokens:
        raise ValueError(text)
    return found
