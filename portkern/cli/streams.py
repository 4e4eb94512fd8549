"""The standard streams of a command: closed, cut off or in a narrow encoding, they end nothing."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OUT, _ERR = 1, 2


class _Pipe(io.FileIO):
    """A pipe that goes on after its reader, such as ``head``, has gone: the work is finished, and
    the exit code is that of the work."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            _discard(self.fileno())
            return memoryview(data).nbytes


def prepare() -> None:
    """Replaces ``sys.stdout`` and ``sys.stderr`` of a process that is portkern's own."""
    for number in (0, _OUT, _ERR):
        try:
            os.fstat(number)
        except OSError:  # closed by the caller (>&-): a file opened later must not take its number
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
    sys.stdout = _writer(_OUT, sys.stdout, errors="replace")
    sys.stderr = _writer(_ERR, sys.stderr, errors="backslashreplace")


def finish() -> str:
    """Write what is buffered; why it cannot be, else empty."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(_OUT)  # or the interpreter tries again when it ends
        return f"Cannot write to standard output: {error.strerror}"
    return ""


def _writer(number: int, given: TextIO | None, *, errors: str) -> TextIO:
    raw = _Pipe(number, "w", closefd=False)
    by_line = number == _ERR or raw.isatty()
    encoding = given.encoding if given is not None else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=by_line
    )


def _discard(number: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
