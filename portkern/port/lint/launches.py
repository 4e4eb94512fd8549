"""Launches in a file, with what is constant of their configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from portkern.port.lint.source import Source, split

_CHEVRONS = re.compile(r"\b(\w+)\s*(?:<[^<>;{}]*>)?\s*<<<(.*?)>>>", re.DOTALL)
_GGL = re.compile(r"\bhipLaunchKernelGGL(?=\s*\()")
_NAME = re.compile(r"^\W*(?:HIP_KERNEL_NAME\s*\(\W*)?(?:\w+\s*::\s*)*(\w+)")
_DIM3 = re.compile(
    r"\bdim3\s+(\w+)\s*(?:\(([^;]*)\)|\{([^;]*)\}|=\s*(?:dim3)?\s*[({]([^;]*)[)}])\s*;"
)


@dataclass(frozen=True)
class Launch:
    """``threads`` and ``shared_bytes`` are None where they are no constants."""

    kernel: str
    at: int
    grid: str
    block: str
    shared: str
    threads: int | None
    shared_bytes: int | None


@lru_cache(maxsize=64)
def launches(source: Source) -> tuple[Launch, ...]:
    return tuple(_launches(source))


def _launches(source: Source) -> Iterator[Launch]:
    if "<<<" in source.code:
        for match in _CHEVRONS.finditer(source.code):
            yield _launch(source, match[1], match.start(), split(match[2]))
    if "hipLaunchKernelGGL" in source.words:
        for call in source.calls(_GGL):
            kernel = _NAME.search(call.arguments[0]) if call.arguments else None
            name = kernel[1] if kernel else ""
            yield _launch(source, name, call.start, list(call.arguments[1:4]))


def _launch(source: Source, kernel: str, at: int, parts: list[str]) -> Launch:
    grid, block, shared, *_ = [*parts, "", "", ""]
    return Launch(
        kernel, at, grid, block, shared, _threads(source, at, block), source.integer(shared)
    )


def _threads(source: Source, at: int, block: str) -> int | None:
    """How many threads a block has."""
    made = re.fullmatch(r"dim3\s*[({](.*)[)}]", block, re.DOTALL)
    text = made[1] if made else block
    if re.fullmatch(r"\w+", block):
        declared = [m for m in _DIM3.finditer(source.code, 0, at) if m[1] == block]
        if declared:
            text = next((g for g in declared[-1].groups()[1:] if g is not None), "")
    sizes = [source.integer(part) for part in split(text)]
    threads = 1
    for size in sizes:
        if size is None:
            return None
        threads *= size
    return threads if sizes else None
