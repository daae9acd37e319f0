"""Frozen dataclasses that are cheap to define: their methods are written when they are called often.

`dataclasses.dataclass` compiles up to six functions a class, half a millisecond each time a process starts. A command
loads four hundred such classes, makes a few objects of most of them, and hardly ever compares or prints one. Here a
class gets its fields and slots at once, as the standard library makes them, and stand-ins for `__init__`, `__eq__`,
`__hash__` and `__repr__`. A stand-in goes through the fields one by one. After FEW calls it has the standard library
write the method and puts that into the class, so that later calls are as fast as they ever were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from inspect import Signature
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, init=True, repr=True, eq=True):
        """Make a class a dataclass, with the words of `dataclasses.dataclass`."""
        wanted = {"__init__": init, "__repr__": repr, "__eq__": eq, "__hash__": eq}

        def wrap(cls):
            # Of a class without one, the standard library would print the signature of the standard `__init__`.
            cls.__doc__ = cls.__doc__ or cls.__name__
            with _thawed(cls.__mro__[1:]):
                fielded = dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
            # Who adds fields to it with the standard library's own decorator has to freeze them as well.
            fielded.__dataclass_params__.frozen = frozen
            return _completed(fielded, [name for name, yes in wanted.items() if yes], frozen)

        return wrap if cls is None else wrap(cls)

    @contextmanager
    def _thawed(classes):
        """Let the standard library add fields to frozen classes without freezing them itself."""
        known = [vars(one)["__dataclass_params__"] for one in classes if "__dataclass_params__" in vars(one)]
        known = [params for params in known if params.frozen]
        for params in known:
            params.frozen = False
        try:
            yield
        finally:
            for params in known:
                params.frozen = True


C = TypeVar("C")
# To write and compile a method takes as long as going through the fields of some thirty objects.
FEW = 32


def _completed(cls: type[C], wanted: list[str], frozen: bool) -> type[C]:
    """Put stand-ins of the wanted methods into a class, where it does not write its own."""
    own = vars(cls)
    setattr(cls, "__signature__", _Signature())  # noqa: B010 - no class is declared to have one
    hashes_itself = own.get("__hash__") is not None
    for name in wanted:
        if name != "__hash__" and name not in own:
            setattr(cls, name, _until_called(cls, name, frozen))
        elif name == "__hash__" and not hashes_itself:
            setattr(cls, name, _until_called(cls, name, frozen) if frozen else None)
    if frozen:
        for name in ("__setattr__", "__delattr__", "__getstate__", "__setstate__"):
            if name not in own:
                setattr(cls, name, vars(_Frozen)[name])
    return cls


def _until_called(cls: type, name: str, frozen: bool) -> Callable[..., object]:
    """Stand in for a method; the call behind the first few puts the written one in this one's place."""
    slow, left = _BY_FIELDS.get(name), FEW
    by_fields: Callable[..., object] | None = None

    def method(*args: object, **words: object) -> object:
        nonlocal left, by_fields
        left -= 1
        if slow is not None and left >= 0:
            by_fields = by_fields or slow(cls, frozen)
            with suppress(_WrongArgumentsError):
                return by_fields(*args, **words)
        setattr(cls, name, _written(cls, name, frozen))
        return getattr(cls, name)(*args, **words)

    return method


class _WrongArgumentsError(Exception):
    """Arguments that a written `__init__` refuses in its own words."""


def _fill_by_fields(cls: type, frozen: bool) -> Callable[..., object]:
    """Return an `__init__` that takes its arguments as a written one does."""
    all_fields = dataclasses.fields(cls)
    in_order = [field.name for field in all_fields if field.init and not field.kw_only]
    put, ends = object.__setattr__ if frozen else setattr, hasattr(cls, "__post_init__")

    def fill(self: object, *args: object, **words: object) -> None:
        given = dict(zip(in_order, args, strict=False))
        if len(args) > len(in_order) or not given.keys().isdisjoint(words):
            raise _WrongArgumentsError
        given.update(words)
        for field in all_fields:
            if field.init and field.name in given:
                put(self, field.name, given.pop(field.name))
            elif field.default is not dataclasses.MISSING:
                put(self, field.name, field.default)
            elif field.default_factory is not dataclasses.MISSING:
                put(self, field.name, field.default_factory())
            elif field.init:
                raise _WrongArgumentsError
        if given:
            raise _WrongArgumentsError
        if ends:
            self.__post_init__()  # type: ignore[attr-defined]

    return fill


def _equal_by_fields(cls: type, frozen: bool) -> Callable[..., object]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return tuple(getattr(self, name) for name in names) == tuple(getattr(other, name) for name in names)

    return equal


def _hash_by_fields(cls: type, frozen: bool) -> Callable[..., object]:
    hashed = (field.compare if field.hash is None else field.hash for field in dataclasses.fields(cls))
    names = [field.name for field, yes in zip(dataclasses.fields(cls), hashed, strict=True) if yes]
    return lambda self: hash(tuple(getattr(self, name) for name in names))


_BY_FIELDS = {"__init__": _fill_by_fields, "__eq__": _equal_by_fields, "__hash__": _hash_by_fields}


def _written(cls: type, name: str, frozen: bool) -> Callable[..., object]:
    """Write one method of a class."""
    if name == "__init__":
        return _initializer(cls, frozen)
    members: dict[str, object] = {field.name: field for field in dataclasses.fields(cls)}
    members["__annotations__"] = {field.name: field.type for field in dataclasses.fields(cls)}
    members["__module__"], members["__qualname__"], members["__doc__"] = cls.__module__, cls.__qualname__, cls.__name__
    twin: type = dataclasses.dataclass(
        type(cls.__name__, (), members),
        init=False,
        repr=name == "__repr__",
        eq=name != "__repr__",
        unsafe_hash=name == "__hash__",
        match_args=False,
    )
    return cast(FunctionType, vars(twin)[name])


class _Signature:
    """What `inspect.signature` finds of a record: a stand-in of `__init__` has no signature of its own."""

    def __get__(self, instance: object, owner: type) -> Signature | None:
        """Return the signature of the class; None for an object, which is no function."""
        if instance is not None:
            return None
        from inspect import signature

        maker = next(one for one in owner.__mro__ if "__init__" in vars(one))
        init = vars(maker)["__init__"]
        found = signature(_initializer(maker, True) if init.__qualname__.startswith(_until_called.__name__) else init)
        return found.replace(parameters=list(found.parameters.values())[1:])


def _initializer(cls: type, frozen: bool) -> Callable[..., object]:
    """Write `__init__` as the standard library does, but without what it compiles beside it for a frozen class."""
    known: dict[str, object] = {"__name__": cls.__module__, "_set": object.__setattr__, "_absent": dataclasses.MISSING}
    words, keywords, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name = value = field.name
        default = ""
        if field.default_factory is not dataclasses.MISSING:
            known[f"_new_{name}"], default = field.default_factory, "=_absent"
            value = f"_new_{name}() if {name} is _absent else {name}" if field.init else f"_new_{name}()"
        elif field.default is not dataclasses.MISSING:
            known[f"_given_{name}"], default = field.default, f"=_given_{name}"
            value = name if field.init else f"_given_{name}"
        if field.init:
            (keywords if field.kw_only else words).append(name + default)
        if field.init or default:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    head = ", ".join([*words, "*", *keywords] if keywords else words)
    # As the standard library does it; all that enters the text are names of fields.
    exec(f"def __init__({head}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102
    written = cast(FunctionType, known["__init__"])
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    written.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    return written


class _Frozen:
    """What a frozen record does besides: it refuses to change, and is copied and pickled all the same."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[object]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def __setstate__(self, state: list[object]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
