"""A call of Python as arguments of a verb, and the signature that says which words it takes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

from ...ir.errors import UnknownNameError, UsageError, did_you_mean
from ...ir.graph import Graph
from ...ir.text.untrusted import allow_typed_code
from ..arguments.machine import SystemArgs
from ..arguments.options import Opt, options_of
from ..arguments.serving import ServerArgs
from ..arguments.verbs import MachinesArg, NamedMachineArg
from ..plans.launch import read_files
from ..plans.own_defaults import has_own_defaults, read_own_defaults, used_defaults
from ..plans.words import MODEL
from ..sources import Layer, Setting, Source, VerbArguments, merge_layers

P = ParamSpec("P")
R = TypeVar("R")

# Python says nothing while it works and leaves nothing on the disk, unless it is asked to.
_USUAL: Mapping[str, bool] = {"quiet": True, "ledger": False}
_PLACES: Mapping[str, Opt] = {"model": MODEL, **options_of(SystemArgs)}


def verb(words: Callable[P, object], of: str = "") -> Callable[[Callable[[VerbArguments], R]], Callable[P, R]]:
    """Make a function of a verb of one that answers for arguments; its parameters are those of the record of its words.

    Args:
        words: the record.
        of: the verb of the command line, where it has another name.
    """

    def make(answer: Callable[[VerbArguments], R]) -> Callable[P, R]:
        record, name = cast("type", words), answer.__name__

        @wraps(answer)
        def call(*given: P.args, **said: P.kwargs) -> R:
            places = [field.name for field in fields(record) if field.name in _PLACES]
            if len(given) > len(places):
                raise UsageError(f"{name} takes {' and '.join(places)}, and words by name; {_LAYERED}")
            values = {**dict(zip(places, given, strict=False)), **said}
            missing = [place for place in places if place not in values and _is_needed(record, place)]
            if missing:
                raise UsageError(f"{name} needs {' and '.join(missing)}")
            is_named = issubclass(record, NamedMachineArg | MachinesArg)
            if is_named and not isinstance(values.get("system"), str | Path | list | tuple | None):
                told = "its stack or its numbers are chosen here: name it, or give the path of its file, and set={...}"
                raise UsageError(f"{name}: a system as an object is as it is, and {told}")
            arguments, scope = _arguments(of or name, name, record, values)
            with scope:
                found = answer(arguments)
            return _with_command(found, arguments)

        call.__signature__ = signature_of(record)  # type: ignore[attr-defined]
        call.__annotations__ = {}
        lines = (f"    {word}: {opt.help}" for word, opt in options_of(record).items())
        call.__doc__ = "\n".join((answer.__doc__ or "", "", "Words, as flags of the command line:", *lines))
        return call

    return make


_LAYERED = (
    "a graph under a Plan goes to slipstick.driver.estimate.estimate, a PlanJob to slipstick.explore.searching.search"
)


def signature_of(record: type) -> Signature:
    """Return the signature that the words of a record make."""
    words, known = options_of(record), {field.name: field for field in fields(record)}
    places = [name for name in known if name not in words]
    found = []
    for name in (*places, *words):
        # A word of plans that no field spells out has its default alone.
        field = known.get(name)
        hint, default = (object, words[name].default) if field is None else (field.type, field.default)
        default = Parameter.empty if field is not None and _is_needed(record, name) else default
        kind = Parameter.KEYWORD_ONLY if name in words else Parameter.POSITIONAL_OR_KEYWORD
        found.append(Parameter(name, kind, default=default, annotation=getattr(hint, "__origin__", hint)))
    return Signature(found)


def _is_needed(record: type, name: str) -> bool:
    return not hasattr(record, name)


def _arguments(
    verb: str, name: str, record: type, values: Mapping[str, object]
) -> tuple[VerbArguments, AbstractContextManager[None]]:
    """Return the arguments of a call, over what files and defaults of one's own say, and the scope of typed code."""
    words = options_of(record)
    options = {**{place: _PLACES[place] for place in values if place in _PLACES}, **words}
    objects, values = _objects(values)
    usual = {word: value for word, value in _USUAL.items() if word in words}
    if values.get("resume") is not None:
        usual.pop("ledger", None)
    typed: dict[str, Setting] = {}
    flags: list[str] = []
    places = {word: value for word, value in values.items() if word in _PLACES}
    for word, value in {**places, **usual, **values}.items():
        opt = options.get(word)
        if opt is None:
            near = "; serve(...) has it;" if word in options_of(ServerArgs) else did_you_mean(word, list(words))
            raise UnknownNameError(f"{name} has no word '{word}'{near} see help(slipstick.{name})")
        if value is not None:
            typed[opt.field] = Setting(_read(opt, value), Source.TYPED)
            flags += [str(value)] if word == MODEL.word else opt.flags_of(value)
    own = _own_defaults(verb, options)
    named = {key: one.value for key, one in own.items() if key in ("plan", "launch")}
    said = VerbArguments()
    files = read_files(verb, options, {**named, **{key: one.value for key, one in typed.items()}}, said.talk.say)
    settings = merge_layers({**_PLACES, **words}, own, files.layer, typed, files.counted)
    for opt in words.values():
        if opt.is_required and settings[opt.field].source is Source.DEFAULT:
            raise UsageError(f"Missing option '{opt.long}'.")
    used = used_defaults(options, own, settings)
    # No command line says an object.
    command = "" if objects else shlex.join(["slipstick", verb, *flags, *used])
    more = {key: Setting(value, Source.TYPED) for key, value in objects.items()}
    found = VerbArguments(settings={**settings, **more}, framework=files.framework, command=command, defaults=used)
    return found, allow_typed_code(flags)


def _read(opt: Opt, value: object) -> object:
    """Return a value as a request has it; UsageError as the command line has it."""
    if opt.is_switch and not isinstance(value, bool):
        raise UsageError(f"{opt.word}={value!r}: True or False")
    try:
        return opt.read(value)
    except UsageError as error:
        told = str(error).startswith(f"{opt.word}=")
        raise UsageError(str(error) if told else f"Invalid value for '{opt.long}': {error}") from None


def _own_defaults(verb: str, options: Mapping[str, Opt]) -> Layer:
    if not has_own_defaults():
        return {}
    known = {word: opt for word, opt in options.items() if word != MODEL.word}
    own = read_own_defaults(verb, known, (), lambda line: None)
    fields_of = {opt.field: opt for opt in known.values()}
    return {name: Setting(fields_of[name].read(one.value), one.source) for name, one in own.items()}


def _objects(values: Mapping[str, object]) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the objects among model and system, by the fields that take them, and all values with their names."""
    objects, found = dict[str, object](), dict(values)
    model, system = values.get("model"), values.get("system")
    if not isinstance(model, str | Path | Graph | None):
        from ...frontend.module import trace as trace_module

        model = trace_module(model, phase=str(values.get("phase", "train")))  # type: ignore[arg-type]
    if isinstance(model, Graph):
        objects["graph"] = model
        # The name of a saved graph: it says all by itself, and there is no config to look at.
        found = {"phase": str(model.workload), **found, "model": f"{model.name}.graph"}
    if not isinstance(system, str | Path | list | tuple | None):
        objects["loaded"] = system
        found["system"] = getattr(system, "name", system)
    elif isinstance(system, list | tuple):
        found["system"] = ",".join(map(str, system))
    return objects, found


def _with_command(found: R, arguments: VerbArguments) -> R:
    """Return a result with the command line that gives the same."""
    from ...report.results.result import Result

    if not isinstance(found, Result):
        return found
    return cast("R", replace(found, command=arguments.command, defaults=arguments.defaults))
