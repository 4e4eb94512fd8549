"""What launches did to device memory, as portkern/simt/runtime/record.cpp writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Content:
    """Of a buffer after a launch; ``data`` is None beyond the recording's bound."""

    size: int
    digest: str
    data: bytes | None = None


@dataclass(frozen=True)
class LaunchRecord:
    """``arguments`` are the buffers and offsets that the kernel's arguments point to, in their
    order, as far as the closure shows it. ``before`` are buffers that other than kernels changed
    since the last launch, ``after`` those that this one did."""

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

    @property
    def name(self) -> str:
        """Without namespaces and template arguments."""
        return kernel_name(self.kernel)


def kernel_name(expression: str) -> str:
    """``ns::scale<float, 4>`` is ``scale``."""
    plain, depth = "", 0
    for character in expression:
        depth += (character == "<") - (character == ">")
        if depth == 0 and character not in "<>":
            plain += character
    return plain.replace("(", " ").replace(")", " ").strip().split("::")[-1].strip().strip("&")


def read(data: bytes) -> tuple[LaunchRecord, ...]:
    """The launches of a recording. What a crash or a limit has cut off is left out."""
    launches: list[LaunchRecord] = []
    contents: dict[int, Content] = {}
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        try:
            line = cast("dict[str, object]", json.loads(data[at:end]))
            size = int(cast("int", line["blob"]))
            blob, at = data[end + 1 : end + 1 + size], end + 1 + size
            if len(blob) < size:
                break
            launches.append(_launch(line, blob, contents))
        except (ValueError, KeyError, TypeError, IndexError):
            break
    return tuple(launches)


def _launch(line: Mapping[str, object], blob: bytes, contents: dict[int, Content]) -> LaunchRecord:
    before = cast("Sequence[tuple[int, int, str]]", line.get("before", ()))
    after: dict[int, Content] = {}
    at = 0
    for number, size, digest, stored in cast(
        "Sequence[tuple[int, int, str, int]]", line.get("after", ())
    ):
        data = None
        if stored >= 0:
            data, at = blob[at : at + stored], at + stored
        elif number in contents and contents[number].digest == digest:
            data = contents[number].data
        after[number] = Content(size, digest, data)
        if data is not None:
            contents[number] = after[number]
    return LaunchRecord(
        int(cast("int", line["launch"])),
        str(line["kernel"]),
        _size(line["grid"]),
        _size(line["block"]),
        int(cast("int", line["shared"])),
        tuple(
            (int(n), int(o))
            for n, o in cast("Sequence[tuple[int, int]]", line.get("arguments", ()))
        ),
        {int(number): digest for number, _, digest in before},
        after,
        bool(line.get("failed")),
        bool(line.get("refused")),
    )


def _size(value: object) -> Size:
    x, y, z = cast("Sequence[int]", value)
    return int(x), int(y), int(z)
