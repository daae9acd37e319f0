"""Events of the Trace Event Format as lines of JSON: slices, counters, arrows and names, in microseconds.

Times are whole nanoseconds inside, as viewers keep them: what ends where the next thing starts does so exactly.
Source: Google, "Trace Event Format" (phases X, C, s, f and M).
"""

from __future__ import annotations

import json
from collections.abc import Mapping


def nanoseconds(seconds: float) -> int:
    """Return the whole nanosecond nearest to a moment."""
    return round(seconds * 1e9)


def microseconds(ns: int) -> str:
    """Print nanoseconds as microseconds, exactly.

    >>> microseconds(1_234_050), microseconds(2_000)
    ('1234.05', '2')
    """
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def complete(pid: int, tid: int, name: str, category: str, start_ns: int, end_ns: int, args: str = "") -> str:
    """Return a slice; `args` are members of a JSON object, without its braces."""
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{microseconds(start_ns)},"dur":{microseconds(end_ns - start_ns)},'
        f'"name":{json.dumps(name)},"cat":"{category}","args":{{{args}}}}}'
    )


def counter(pid: int, name: str, at_ns: int, values: Mapping[str, float]) -> str:
    """Return the values of a counter from a moment on, as whole numbers."""
    series = ",".join(f"{json.dumps(k)}:{round(v)}" for k, v in values.items())
    return f'{{"ph":"C","pid":{pid},"ts":{microseconds(at_ns)},"name":{json.dumps(name)},"args":{{{series}}}}}'


def arrow(pid: int, tid: int, number: int, at_ns: int, starts: bool) -> str:
    """Return one end of an arrow; it belongs to the slice that encloses the moment."""
    end = '"ph":"s"' if starts else '"ph":"f","bp":"e"'
    return f'{{{end},"id":{number},"pid":{pid},"tid":{tid},"ts":{microseconds(at_ns)},"name":"send","cat":"pipeline"}}'


def process(pid: int, name: str, place: int) -> list[str]:
    """Name a process and say where it stands among the others."""
    return [_meta(pid, 0, "process_name", "name", name), _meta(pid, 0, "process_sort_index", "sort_index", place)]


def thread(pid: int, tid: int, name: str) -> list[str]:
    """Name a thread; threads stand in the order of their numbers."""
    return [_meta(pid, tid, "thread_name", "name", name), _meta(pid, tid, "thread_sort_index", "sort_index", tid)]


def _meta(pid: int, tid: int, name: str, key: str, value: str | int) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{name}","args":{{"{key}":{json.dumps(value)}}}}}'
