"""Messages between a program's host code and the device that executes its kernels: a line of JSON,
and bytes.

The host's side is in the program's own process, and may say anything: all is read by type, and no
more than is announced.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from portkern.sandbox import message
from portkern.sandbox.message import FormError
from portkern.spec.foreign_text import json_value

Size = tuple[int, int, int]
#: Where contents lie, and how many bytes there are.
Span = tuple[int, int]
T = TypeVar("T")
#: The longest line: the buffers of a launch, of which a message has as many as items.
_MOST_LINE = 32 << 20


@dataclass(frozen=True)
class LinkedMemory:
    """A buffer of the device. ``kind`` is the runtime's (:data:`OF_DEVICE` …), ``dtype`` the number
    of a tensor's type. ``changed``: the host may have written to it since the last launch."""

    number: int
    address: int
    size: int
    kind: int
    dtype: int
    changed: bool


OF_DEVICE, OF_BOTH, OF_HOST = range(3)


@dataclass(frozen=True)
class Variables:
    """The variables of the device which the host's library has too, by name and place; the contents
    of each follow."""

    places: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Asked:
    """A launch, with all buffers that there are. The bytes of its arguments follow, of these sizes,
    and the contents of ``written``. ``refused``: the host's side has refused it."""

    kernel: str
    symbol: str
    grid: Size
    block: Size
    dynamic: int
    arguments: tuple[int, ...] = ()
    buffers: tuple[LinkedMemory, ...] = ()
    written: tuple[Span, ...] = ()
    refused: bool = False

    def __post_init__(self) -> None:
        sizes = [size for _, size in self.written]
        if min(self.dynamic, *self.grid, *self.block, *self.arguments, *sizes) < 0:
            raise ValueError("a size is negative")


@dataclass(frozen=True)
class Answer:
    """The error of a launch, 0 for none, and the memory that the kernel has changed; its contents
    follow."""

    error: int
    written: tuple[Span, ...] = ()


class Channel:
    """One side of the connection. Raises EOFError where the other is gone, TimeoutError where it is
    silent beyond the clock's :attr:`deadline`, until which it is waited for."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reading = connection.makefile("rb")
        self.deadline = math.inf

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    def close(self) -> None:
        self._reading.close()
        self._connection.close()

    def send(self, said: object, contents: Sequence[bytes] = ()) -> None:
        try:
            self._connection.sendall(message.encoded(said))
            for content in contents:
                self._connection.sendall(content)
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self, kind: type[T]) -> T:
        """Raises FormError for what is not one."""
        left_s = self.deadline - time.monotonic()
        self._connection.settimeout(left_s if 0 < left_s < math.inf else None)
        line = self._reading.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            raise EOFError("the other side has ended")
        try:
            return message.read(kind, json_value(line))
        except (ValueError, RecursionError) as error:
            raise FormError(str(error)) from error

    def bytes(self, size: int) -> bytes:
        content = self._reading.read(size)
        if len(content) < size:
            raise EOFError("the other side has ended")
        return content
