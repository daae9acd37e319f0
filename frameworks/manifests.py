"""Files around a launch: Kubernetes manifests and Compose files whose containers run it, experiments of Primus."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from ..ir.records import dataclass
from ..ir.units import is_digits

_DEVICES = re.compile(r".*/(gpu|tpu|neuron|gaudi|mig-\S+)")
# Copies of a pod, by the kinds of workload that there are.
_COPIES = ("parallelism", "replicas", "completions")
_DEEPEST = 60


@dataclass(frozen=True, slots=True)
class Launched:
    """A command as a manifest runs it.

    Attributes:
        script: what its containers run, a command a line.
        environment: variables that it sets.
        num_gpus: devices of all pods; None where it asks for none.
    """

    script: str
    environment: Mapping[str, str] = field(default_factory=dict)
    num_gpus: int | None = None


def launched(documents: Sequence[object]) -> Launched | None:
    """Return what the containers of a manifest run; None for files that have none.

    >>> pod = {"spec": {"containers": [{"command": ["vllm", "serve", "m"], "args": ["--tensor-parallel-size", "4"]}]}}
    >>> launched([pod]).script
    'vllm serve m --tensor-parallel-size 4'
    """
    lines: list[str] = []
    environment: dict[str, str] = {}
    devices = 0
    for document in documents:
        for container, copies in _containers(document, 1, 0):
            lines += _commands(container)
            environment |= _environment(container.get("env", container.get("environment")))
            devices += copies * _devices(container)
    return Launched("\n".join(lines), environment, devices or None) if lines else None


def _containers(tree: object, copies: int, depth: int) -> Iterator[tuple[Mapping[str, object], int]]:
    """Yield containers, and services of Compose, with how many copies of their pod there are."""
    if depth > _DEEPEST:
        return
    if isinstance(tree, Mapping):
        counts = [n for key in _COPIES if isinstance(n := tree.get(key), int) and not isinstance(n, bool)]
        copies *= max(counts, default=1)
        for key, value in tree.items():
            if key == "containers" and isinstance(value, Sequence):
                yield from ((one, copies) for one in value if isinstance(one, Mapping))
            elif key == "services" and isinstance(value, Mapping):
                yield from ((one, 1) for one in value.values() if isinstance(one, Mapping))
            elif key not in ("status", "initContainers"):
                yield from _containers(value, copies, depth + 1)
    elif isinstance(tree, list):
        for one in tree:
            yield from _containers(one, copies, depth + 1)


def _commands(container: Mapping[str, object]) -> Iterator[str]:
    """Yield what a container runs: its command with its arguments, or the script that a shell is given."""
    parts: list[str] = []
    for key in ("entrypoint", "command", "args"):
        said = container.get(key)
        if isinstance(said, list):
            parts += map(str, said)
        elif said is not None:
            # A command whose quote never closes is none.
            with suppress(ValueError):
                parts += shlex.split(str(said))
    if not parts:
        return
    if re.fullmatch(r"(.*/)?(ba)?sh", parts[0]) and len(parts) > 1:
        yield parts[-1]
        return
    image = str(container.get("image", ""))
    # The image of a server has its program as the entry point.
    if parts[0].startswith("-") and "vllm" in image:
        parts = ["vllm", "serve", *parts]
    # `$(NAME)` of Kubernetes is a variable.
    words = (part if re.fullmatch(r"[\w@%+=:,./$(){}-]+", part) else shlex.quote(part) for part in parts)
    yield re.sub(r"\$\((\w+)\)", r"${\1}", " ".join(words))


def _environment(said: object) -> dict[str, str]:
    """Return variables of a container: a list of names and values, or a mapping."""
    if isinstance(said, Mapping):
        return {str(name): str(value) for name, value in said.items()}
    if not isinstance(said, list):
        return {}
    pairs = [one for one in said if isinstance(one, Mapping) and "value" in one]
    lines = [str(one).partition("=") for one in said if isinstance(one, str) and "=" in one]
    return {str(one.get("name")): str(one["value"]) for one in pairs} | {name: value for name, _, value in lines}


def _devices(container: Mapping[str, object]) -> int:
    resources = container.get("resources")
    limits = resources.get("limits") or resources.get("requests") if isinstance(resources, Mapping) else None
    if not isinstance(limits, Mapping):
        return 0
    return sum(int(str(n)) for name, n in limits.items() if _DEVICES.fullmatch(str(name)) and is_digits(str(n)))
