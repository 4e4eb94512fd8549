"""A recording of what launches did to device memory, as portkern/simt/runtime/record.cpp writes
it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from portkern.sandbox import message

Size = tuple[int, int, int]

#: The mark in the place of contents that are what was last written.
_AS_BEFORE = -2


@dataclass(frozen=True)
class Content:
    """The content of a buffer after a launch; ``data`` is None beyond the recording's bound.
    ``dtype`` is the number of PyTorch's type where the buffer is a tensor's, else negative."""

    size: int
    digest: str
    data: bytes | None = None
    dtype: int = -1

    def is_as(self, other: Content) -> bool:
        """Whether the two are equal. The digest is quick and no secret, and a kernel may well write
        other contents of the same: it counts only for what no recording holds."""
        if self.data is not None and other.data is not None:
            return self.data == other.data
        return self.digest == other.digest


@dataclass(frozen=True)
class LaunchRecord:
    """``arguments`` are the buffers and offsets that the kernel's arguments point to, in their
    order, as far as the closure shows it. ``before`` are buffers that other than kernels changed
    since the last launch, ``after`` those that this one did. ``absent``: why a run has nothing to
    show for a launch that it was to have. ``account`` and ``elements`` are of a run on elements of
    a ring: what it did that algebra does not cover, and what patterns of bits stand for."""

    number: int
    kernel: str
    grid: Size
    block: Size
    shared: int
    arguments: tuple[tuple[int, int], ...] = ()
    before: Mapping[int, str] = field(default_factory=dict)
    after: Mapping[int, Content] = field(default_factory=dict)
    failed: bool = False
    refused: bool = False
    absent: str = ""
    account: tuple[int, ...] = ()
    elements: bytes = b""

    @property
    def name(self) -> str:
        """The kernel's name without namespaces and template arguments."""
        return kernel_name(self.kernel)


def kernel_name(expression: str) -> str:
    """``ns::scale<float, 4>`` is ``scale``."""
    plain, depth = "", 0
    for character in expression:
        depth += (character == "<") - (character == ">")
        if depth == 0 and character not in "<>":
            plain += character
    return plain.replace("(", " ").replace(")", " ").strip().split("::")[-1].strip().strip("&")


@dataclass(frozen=True)
class _Line:
    """One line of the file, and how many bytes of contents follow it. Of each buffer in ``after``:
    its number, size and digest, and how many of these bytes are its contents, negative where there
    are none of its own; and the type of the tensor that it is. Bytes of ``elements`` follow."""

    launch: int
    kernel: str
    grid: Size
    block: Size
    shared: int
    blob: int
    arguments: tuple[tuple[int, int], ...] = ()
    before: tuple[tuple[int, int, str], ...] = ()
    after: tuple[tuple[int, int, str, int, int], ...] = ()
    failed: bool = False
    refused: bool = False
    algebra: tuple[int, ...] = ()
    elements: int = 0

    def __post_init__(self) -> None:
        sizes = [size for _, size, *_ in self.after]
        stored = [max(most, 0) for *_, most, _ in self.after]
        if min(self.blob, self.elements, self.shared, *self.grid, *self.block, *sizes) < 0:
            raise ValueError("a size is negative")
        if sum(stored) != self.blob or any(
            s not in (0, n) for s, n in zip(stored, sizes, strict=True)
        ):
            raise ValueError("the contents have another size than their buffers")


def read(data: bytes) -> tuple[LaunchRecord, ...]:
    """The launches of a recording, which a program of others wrote. What a crash or a limit has cut
    off is left out, as is what follows a line that the executor cannot have written."""
    launches: list[LaunchRecord] = []
    contents: dict[int, Content] = {}
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        try:
            line = message.read(_Line, json.loads(data[at:end]))
        except (ValueError, RecursionError):
            break
        blob, at = data[end + 1 : end + 1 + line.blob], end + 1 + line.blob
        elements, at = data[at : at + line.elements], at + line.elements
        if len(data) < at:
            break
        launches.append(_launch(line, blob, contents, elements))
    return tuple(launches)


def _launch(
    line: _Line, blob: bytes, contents: dict[int, Content], elements: bytes
) -> LaunchRecord:
    after: dict[int, Content] = {}
    at = 0
    for number, size, digest, stored, dtype in line.after:
        data = None
        if stored >= 0:
            data, at = blob[at : at + stored], at + stored
        elif stored == _AS_BEFORE and number in contents and contents[number].digest == digest:
            data = contents[number].data
        after[number] = Content(size, digest, data, dtype)
        if data is not None:
            contents[number] = after[number]
    return LaunchRecord(
        line.launch,
        line.kernel,
        line.grid,
        line.block,
        line.shared,
        line.arguments,
        {number: digest for number, _, digest in line.before},
        after,
        line.failed,
        line.refused,
        account=line.algebra,
        elements=elements,
    )
