"""Messages over a connection: frozen dataclasses, one JSON object per line.

Whoever reads one may face a forger: what is read is of exactly the types that its class says, or
there is a :class:`FormError`.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import (
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel

R = TypeVar("R")
T = TypeVar("T")

#: The longest list and mapping; counts and sizes fit in 64 bits.
MOST_ITEMS, MOST = 1 << 17, 1 << 63
_BRIEF = 100


class FormError(ValueError):
    """Raised when something read is not of the form that was expected."""


@dataclass(frozen=True)
class Failed:
    """The other side reported an exception; ``error`` is its type's name. ``after_s``: when, by the
    clock of whoever asked; what the other side says of it is not kept."""

    error: str
    message: str
    log: str = ""
    after_s: float = 0.0

    def line(self) -> bytes:
        return encoded({"ok": False, "reply": self})


@dataclass(frozen=True)
class Confined:
    """A worker's first line, before it is asked anything: nothing that it will run has run yet.
    ``problem``: why it could not be confined, and will answer nothing."""

    problem: str = ""


class Request(Generic[R]):
    """A question whose answer is an ``R``; its subclasses are frozen dataclasses, known to the
    other side by the name of their class."""

    _reply: ClassVar[object]

    def __init_subclass__(cls) -> None:
        for base in vars(cls).get("__orig_bases__", ()):
            if get_origin(base) is Request:
                (cls._reply,) = get_args(base)

    def line(self) -> bytes:
        return encoded({"do": type(self).__name__, "with": self})

    def answer(self, reply: R) -> bytes:
        """The line with which the other side answers."""
        return encoded({"ok": True, "reply": reply})

    def read(self, data: object) -> R:
        """The reply in ``data``, plain JSON. Raises :class:`FormError`."""
        return cast("R", reader(self._reply)(data))


def encoded(value: object) -> bytes:
    return json.dumps(value, default=_shallow).encode() + b"\n"


def plain(value: object) -> object:
    """The value as JSON says it."""
    return json.loads(encoded(value))


def read(kind: type[T], data: object) -> T:
    """A ``kind`` of plain JSON. Raises :class:`FormError`."""
    return cast("T", reader(kind)(data))


def _shallow(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"A message has no {type(value).__name__}")


def brief(claim: object) -> str:
    text = str(claim)
    return text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…"


# ---- reading: a function for each type, made once

_Reader = Callable[[object], object]


def _refused(data: object, expected: str) -> FormError:
    return FormError(f"{brief(data)} is not {expected}")


def _integer(data: object) -> int:
    if type(data) is not int or not -MOST <= data < MOST:  # bool is an int to isinstance
        raise _refused(data, "an integer of 64 bits")
    return data


def _number(data: object) -> float:
    """1e999 is infinite without saying so."""
    if type(data) is float and math.isfinite(data):
        return data
    if type(data) is int and -MOST <= data < MOST:
        return float(data)
    raise _refused(data, "a finite number")


def _text(data: object) -> str:
    if type(data) is not str:
        raise _refused(data, "a text")
    return data


def _truth(data: object) -> bool:
    if type(data) is not bool:
        raise _refused(data, "true or false")
    return data


def _nothing(data: object) -> None:
    if data is not None:
        raise _refused(data, "null")


def _items(data: object) -> list[object]:
    if type(data) is not list or len(data) > MOST_ITEMS:
        raise _refused(data, f"a list of at most {MOST_ITEMS}")
    return data


def _mapping(data: object) -> dict[str, object]:
    if type(data) is not dict or len(data) > MOST_ITEMS:
        raise _refused(data, f"a mapping of at most {MOST_ITEMS}")
    return data


_PLAIN: Mapping[object, _Reader] = {
    int: _integer,
    float: _number,
    str: _text,
    bool: _truth,
    type(None): _nothing,
    Path: lambda data: Path(_text(data)),
}


_READERS: dict[object, _Reader] = dict(_PLAIN)


def reader(kind: object) -> _Reader:
    """Returns the function that reads values of this type, made once."""
    if kind not in _READERS:
        _READERS[kind] = _made(kind)
    return _READERS[kind]


def _made(kind: object) -> _Reader:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return lambda data: _chosen(data, parts)
    if origin in (Union, types.UnionType):
        return _either(parts)
    if origin is tuple:
        return _many(parts[0]) if parts[1:] == (Ellipsis,) else _row(parts)
    if origin is not None and issubclass(origin, Mapping):
        value = reader(parts[1])
        return lambda data: {name: value(item) for name, item in _mapping(data).items()}
    if not isinstance(kind, type):
        raise TypeError(f"No message holds a {kind}")
    if issubclass(kind, BaseModel):
        kind.model_rebuild()  # it may have been put off until the first
        return kind.model_validate
    own: _Reader | None = getattr(kind, "from_json", None)
    return _checked(own) if own is not None else _dataclass(kind)


def _chosen(data: object, among: tuple[object, ...]) -> object:
    if type(data) is not str or data not in among:
        raise _refused(data, f"one of {', '.join(map(str, among))}")
    return data


def _either(kinds: tuple[object, ...]) -> _Reader:
    """A reader for one of several types: among plain types the exact one; a scalar of an op may
    be infinite."""
    exact = {kind: _PLAIN[kind] for kind in kinds if kind in _PLAIN}
    if {float, int} <= exact.keys():
        exact[float] = lambda data: data
    rest = [reader(kind) for kind in kinds if kind not in _PLAIN]
    expected = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)

    def read_either(data: object) -> object:
        known = exact.get(type(data))
        if known is not None:
            return known(data)
        for other in rest:
            return other(data)
        raise _refused(data, expected)

    return read_either


def _many(kind: object) -> _Reader:
    item = reader(kind)
    return lambda data: tuple(map(item, _items(data)))


def _row(kinds: tuple[object, ...]) -> _Reader:
    items = [reader(kind) for kind in kinds]

    def read_row(data: object) -> object:
        given = _items(data)
        if len(given) != len(items):
            raise _refused(data, f"a list of {len(items)}")
        return tuple(item(value) for item, value in zip(items, given, strict=True))

    return read_row


def _checked(own: _Reader) -> _Reader:
    def read_own(data: object) -> object:
        try:
            return own(_mapping(data))
        except FormError:
            raise
        except ValueError as error:
            raise FormError(str(error)) from error

    return read_own


def _dataclass(kind: type[object]) -> _Reader:
    if not is_dataclass(kind):
        raise TypeError(f"No message holds a {kind}")
    hints = get_type_hints(kind)
    readers = {field.name: reader(hints[field.name]) for field in fields(kind)}
    needed = {
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    }

    def read_dataclass(data: object) -> object:
        given = _mapping(data)
        if not needed <= given.keys() <= readers.keys():
            raise _refused(sorted(given), f"what {kind.__name__} has: {', '.join(readers)}")
        values = {}
        for name, value in given.items():
            try:
                values[name] = readers[name](value)
            except FormError as error:
                raise FormError(f"{name}: {error}") from None
        try:
            return kind(**values)
        except ValueError as error:
            raise FormError(str(error)) from error

    return read_dataclass
