"""Documents of others, read within limits: so large, so deep, and so many values once their aliases
are put in. What goes beyond is refused in one line, in the time that it takes to see it."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import stat
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import yaml

from portkern.errors import ConfigError
from portkern.spec.safe_name import short

#: Bytes of one document, and of one line of a file that has many.
MOST_BYTES: Final = 64 << 20
#: Lists and mappings within each other: nobody writes more, and Python's stack ends at a thousand.
MOST_LEVELS: Final = 100
#: Values in a YAML document when each alias is what it stands for.
MOST_VALUES: Final = 1_000_000
#: What may be half of a character: as an escape, or as it is.
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
#: Digits of one number; more take Python quadratic time.
_MOST_DIGITS: Final = 400


class Malformed(ValueError):
    """Raised for a malformed text; its message says in one line what is wrong."""


def opened(path: Path) -> BinaryIO:
    """A regular file, to be read. A pipe that nobody writes to would be waited for, and a device
    has no end. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a file", str(path))


def content(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file. Raises OSError, also for one that has more."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        what = f"it is larger than {most >> 20} MiB, the most that is read"
        raise OSError(errno.EFBIG, what, str(path))
    return data


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The same. Raises ConfigError."""
    try:
        return content(path, most)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"Cannot read {path}: {reason}") from error


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a regular file in UTF-8, with or without a mark at its begin. Raises
    ConfigError."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}; save it as UTF-8") from error


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text. Raises Malformed, also for half of a character, which JSON can
    spell and no file can hold (RFC 8259 §8.2)."""
    if len(text) > MOST_BYTES:
        raise Malformed(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        value = json.loads(text, parse_int=_integer)
        if text.count("[") + text.count("{") > MOST_LEVELS:
            _check_levels(value)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise Malformed(f"{half} is half of a character; expected both halves or neither") from None
    except RecursionError:
        raise Malformed("it is nested too deep") from None
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(str(error)) from error


def _check_levels(value: Any) -> None:
    """Raises Malformed for lists and mappings that whoever walks through them has no stack for."""
    level = [value]
    for _ in range(MOST_LEVELS):
        inner = (one.values() if type(one) is dict else one for one in level)
        level = [one for one in chain.from_iterable(inner) if type(one) in (dict, list)]
        if not level:
            return
    raise Malformed(f"it is nested too deep, expected at most {MOST_LEVELS} levels")


def python_tree(source: str | bytes) -> ast.Module:
    """The syntax tree of a Python text. Raises SyntaxError, also for one that Python's own parser
    has no stack or no memory for."""
    try:
        return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "it is nested too deep") from error


def place_of(location: Iterable[str | int]) -> str:
    """The place where something stands in a document, as pydantic says it, on one line."""
    return ".".join(short(part)[1:-1] if isinstance(part, str) else str(part) for part in location)


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ConfigError."""
    try:
        value = json_value(read_text(path))
    except Malformed as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a {type(value).__name__}, expected a JSON object")
    return value


def yaml_value(text: str) -> Any:
    """The value of a YAML text. Raises Malformed."""
    try:
        check_yaml(text)
        return yaml.load(text, _LOADER)
    except yaml.YAMLError as error:
        raise Malformed(" ".join(str(error).split())) from error
    except Malformed:
        raise
    # 2020-13-45 is a date to YAML and !!float x a number
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise Malformed(f"a value in it cannot be: {' '.join(str(error).split())}") from error


def check_yaml(text: str) -> None:
    """Raises yaml.YAMLError, also for a text whose values are too many, where each alias counts as
    all that it stands for, or nested too deep."""
    if len(text) > MOST_BYTES:
        raise yaml.YAMLError(f"it is larger than {MOST_BYTES >> 20} MiB")
    sizes: dict[str, int] = {}  # of each anchor that is complete, with its aliases put in
    open_: list[tuple[str | None, int]] = []  # anchors of what is open, and the count before each
    count = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            anchor = str(event.anchor)
            if anchor not in sizes and any(anchor == name for name, _ in open_):
                raise _excess(event, f"the alias *{anchor} holds itself")
            count += sizes.get(anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            sizes.pop(str(event.anchor), None)
            open_.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            closed, before = open_.pop()
            if closed:
                sizes[closed] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            _check_scalar(event)
        if count > MOST_VALUES:
            raise _excess(event, f"more than {MOST_VALUES:,} values with its aliases put in")
        if len(open_) > MOST_LEVELS:
            raise _excess(event, "it is nested too deep")


def _excess(event: yaml.Event, what: str) -> yaml.MarkedYAMLError:
    mark = event.start_mark  # the parser in C has marks of its own, which say the same
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark)  # type: ignore[arg-type]


def _check_scalar(event: yaml.ScalarEvent) -> None:
    """A number in base 60, ``1:1:1:…``, takes quadratic time, as a long one in base 10 does."""
    typed = event.implicit[0] or event.tag
    if typed and len(event.value) > _MOST_DIGITS and _is_number(event.value):
        raise _excess(event, f"a number of {len(event.value)} characters")


def _is_number(text: str) -> bool:
    return not set(text) - set("0123456789abcdefABCDEFx_:.+-")


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise Malformed(f"it has a number of {len(text)} digits")
    return int(text)


#: The one that C parses for is ten times as fast; a machine may lack it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
