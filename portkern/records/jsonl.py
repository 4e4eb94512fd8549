"""Append-only files of JSON lines: whole lines only, whatever kills the writer; and what stands in
them, numbered by schema."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from portkern.errors import RecordError, StorageError, UnreadableRecords
from portkern.records import atomic_write, packed
from portkern.spec.foreign_text import Malformed, json_value, place_of


class JsonPart(BaseModel):
    # JSON has no infinity, and pydantic's null for it could not be read back: an overflowing
    # kernel's max_abs would make the whole file unreadable.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class JsonLine(JsonPart):
    """A line has its ``schema_``, the number that ``SCHEMA`` was when it was written."""

    SCHEMA: ClassVar[int]

    model_config = ConfigDict(alias_generator=lambda n: n.rstrip("_"), populate_by_name=True)

    def to_json(self) -> str:
        try:
            return self.model_dump_json(by_alias=True)
        except PydanticSerializationError:  # the name of a file that is not UTF-8
            spelled = self.model_validate(_spelled(self.model_dump(by_alias=True)))
            return spelled.model_dump_json(by_alias=True)

    def document(self) -> dict[str, Any]:
        """The line as values that JSON has: an infinite number is a text, as it is in a file."""
        said: dict[str, Any] = from_json(self.to_json())
        return said

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Raises RecordError with the first thing that is wrong."""
        if line.startswith('{"schema":'):  # as portkern writes it: no objects in between
            try:
                known = cls.model_validate_json(line)
            except ValidationError:
                return cls._from_odd(line)
            if getattr(known, "schema_", None) == cls.SCHEMA:
                return known
        return cls._from_odd(line)

    @classmethod
    def _from_odd(cls, line: str) -> Self:
        try:
            data = json_value(line)
        except Malformed as error:
            raise RecordError(f"not JSON: {error}") from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != cls.SCHEMA:
            raise RecordError(f"schema {schema!r}, this portkern reads {cls.SCHEMA}")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = place_of(first["loc"]) or cls.__name__.lower()
            said = first["msg"].removeprefix("Value error, ")
            raise RecordError(f"{field}: {said}") from error


def _spelled(value: Any) -> Any:
    """The value with halves of characters spelled out, which no document can hold."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(name): _spelled(one) for name, one in value.items()}
    return [_spelled(one) for one in value] if isinstance(value, list | tuple) else value


class Written(Protocol):
    def to_json(self) -> str: ...


L = TypeVar("L", bound=Written)


@dataclass(frozen=True)
class Torn:
    """A last line without its end: the writer was killed. It was never a result."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: the last line is cut off and was ignored"


#: How much of a file is looked through at a time.
_PART = 1 << 20


def _own(path: Path) -> FileIO:
    """The file, to be appended to. A link in a folder of others may lead to any file of the user,
    and nobody may read a pipe. Raises OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    file = FileIO(os.open(path, flags, 0o666), "a+")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a file", str(path))


class LineFile(Generic[L]):
    """``parse`` reads one line back, or raises RecordError."""

    def __init__(self, path: Path, parse: Callable[[str], L]) -> None:
        self.path, self._parse_line = path, parse

    def append(self, records: Iterable[L]) -> None:
        """Appends records: all are on disk when this returns, or none. A torn line is cut off
        first; a compressed file is unpacked first. Raises StorageError."""
        self._unpack()
        lines = b"".join(record.to_json().encode() + b"\n" for record in records)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _own(self.path) as file:
                self._drop_torn_line(file)
                end = file.seek(0, os.SEEK_END)
                try:
                    while lines:
                        lines = lines[file.write(lines) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            raise StorageError.of(error, self.path) from error

    def read(self) -> tuple[list[L], Torn | None]:
        """All lines, and the torn last one if there is one; of the compressed file where only that
        is there. Raises RecordError for the rest."""
        path = packed.standing(self.path)
        try:
            return self._read(path) if path.exists() else ([], None)
        except OSError as error:
            raise UnreadableRecords(f"Cannot use {path}: {error.strerror or error}") from error

    def _read(self, path: Path) -> tuple[list[L], Torn | None]:
        found: list[L] = []
        with no_search_for_garbage(), packed.opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                if not line.endswith(b"\n"):
                    return found, Torn(path, number)
                try:
                    found.append(self._parse_line(line.decode(errors="replace")))
                except RecordError as error:
                    raise RecordError(f"{path}:{number}: {error}") from error
        return found, None

    def _unpack(self) -> None:
        file = packed.standing(self.path)
        if file != self.path:
            with packed.opened(file) as lines:
                atomic_write.write(self.path, b"".join(lines))
            file.unlink()

    @staticmethod
    def _drop_torn_line(file: BinaryIO) -> None:
        file.seek(0, os.SEEK_END)
        end = file.tell()
        if end == 0:
            return
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        while end:  # from the end: a file of others may be longer than the memory
            begin = max(0, end - _PART)
            file.seek(begin)
            if (place := file.read(end - begin).rfind(b"\n")) >= 0:
                file.truncate(begin + place + 1)
                return
            end = begin
        file.truncate(0)


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Records refer to each other nowhere: to look for circles in a hundred thousand of them takes
    as long as to read them."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
