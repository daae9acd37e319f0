"""A `.pt2` file to a program: a zip archive of which only the JSON parts are read, each of a size that is allowed."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from pathlib import Path

from ....ir.errors import NotUnderstoodError, SlipstickError
from ...record.failures import first_line
from ..program import Program
from .json_parts import Json, Part
from .serialised import read

# Weights lie beside the JSON; a graph of the deepest models takes tens of MB, with the lines of the user's code.
_MOST_BYTES = 256 << 20
_MOST_MEMBERS = 1_000_000
_MODEL = re.compile(r"^(?:[^/]+/)?models/([^/]+)\.json$")
_OLD_MODEL = re.compile(r"^(?:[^/]+/)?serialized_exported_program\.json$")
_WHAT = "write it with torch.export.save(torch.export.export(model, inputs, dynamic_shapes=..), 'model.pt2')"


def read_program(path: Path) -> Program:
    """Return the program of a file that `torch.export.save` wrote; NotUnderstoodError says what is wrong with it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(path, archive)
    except FileNotFoundError as error:
        raise NotUnderstoodError(f"no file '{path}'") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise NotUnderstoodError(f"'{path}' is cut short or no .pt2 archive ({error}); {_WHAT}") from error


def _read(path: Path, archive: zipfile.ZipFile) -> Program:
    members = archive.namelist()
    if len(members) > _MOST_MEMBERS:
        raise NotUnderstoodError(f"'{path}' has {len(members)} members, more than any exported model")
    model = _model_in(path, members)
    root = model[: model.index("models/")] if _MODEL.match(model) else ""
    name = path.stem
    held = []
    if root or _MODEL.match(model):
        stem = Path(model).stem
        for config in (f"data/weights/{stem}_weights_config.json", f"data/constants/{stem}_constants_config.json"):
            if root + config in members:
                held.append(_json(path, archive, root + config))
    try:
        return read(_json(path, archive, model), held, name)
    except SlipstickError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:  # what torch says of odd names
        raise NotUnderstoodError(f"'{path}': the graph of the model is not whole ({first_line(error)})") from error


def _model_in(path: Path, members: list[str]) -> str:
    models = [m for m in members if _MODEL.match(m)] or [m for m in members if _OLD_MODEL.match(m)]
    if len(models) == 1:
        return models[0]
    if models:
        raise NotUnderstoodError(f"'{path}' holds {len(models)} models ({', '.join(models[:4])}); save one a file")
    if any(m.endswith("data.pkl") for m in members):
        raise NotUnderstoodError(f"'{path}' is pickled or TorchScript, and unpickling runs code; {_WHAT}")
    if any("aotinductor" in m for m in members):
        raise NotUnderstoodError(f"'{path}' holds compiled code and no graph; {_WHAT}")
    raise NotUnderstoodError(f"'{path}' is a zip archive without an exported model; {_WHAT}")


def _json(path: Path, archive: zipfile.ZipFile, member: str) -> Part:
    """Read a member that says its size honestly or not: no more than the limit is ever unpacked."""
    with archive.open(member) as stream:
        text = stream.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise NotUnderstoodError(f"'{path}': {member} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        value: Json = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise NotUnderstoodError(f"'{path}': {member} is no JSON ({error})") from error
    return Part(value, f"'{path}': {member.rpartition('/')[2]}")


__all__ = ["read_program"]
