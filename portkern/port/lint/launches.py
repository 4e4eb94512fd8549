"""Launches in a file, with what is constant of their configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from portkern.port.lint.source import Source, split

_DIM3 = re.compile(
    r"\bdim3\s+(\w+)\s*(?:\(([^;]*)\)|\{([^;]*)\}|=\s*(?:dim3)?\s*[({]([^;]*)[)}])\s*;"
)


@dataclass(frozen=True)
class LintedLaunch:
    """``threads`` and ``shared_bytes`` are None where they are not constants."""

    kernel: str
    at: int
    grid: str
    block: str
    shared: str
    threads: int | None
    shared_bytes: int | None


@lru_cache(maxsize=64)
def launches(source: Source) -> tuple[LintedLaunch, ...]:
    return tuple(_launches(source))


def _launches(source: Source) -> Iterator[LintedLaunch]:
    """A launch that a macro writes counts where the macro is used, if it is."""
    found = source.syntax.launches
    used = {launch.macro for launch in found if launch.macro != launch.function}
    for launch in found:
        if launch.macro != launch.function or launch.macro not in used or not launch.macro:
            yield LintedLaunch(
                launch.kernel,
                launch.at,
                launch.grid,
                launch.block,
                launch.shared,
                _threads(source, launch.at, launch.block),
                source.integer(launch.shared),
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
