"""Pitfalls of a port that can be read off the text: rules by theme."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from portkern.port.hazard import Hazard
from portkern.port.lint import (
    build_files,
    divergence,
    libraries,
    masks,
    names,
    nvidia,
    resources,
    sums,
    triton_files,
    waiting,
    width,
)
from portkern.port.lint.rule import Platform, Rule
from portkern.port.lint.source import Source
from portkern.spec.target import Target

_CODE: tuple[Rule, ...] = (
    *width.RULES,
    *masks.RULES,
    *divergence.RULES,
    *waiting.RULES,
    *resources.RULES,
    *names.RULES,
    *nvidia.RULES,
    *libraries.RULES,
    *sums.RULES,
)
_BUILD: tuple[Rule, ...] = (*build_files.RULES, *triton_files.RULES)


def lint(
    text: str, name: str, *, target: Target | None = None, headers: Sequence[str] = ()
) -> tuple[Hazard, ...]:
    """The hazards that a port of ``text`` must heed, by line; ``name`` tells kernels from build
    files.

    CUDA and HIP are both read, and what is right at every width gives nothing. Without a target,
    what is a hazard on some AMD device is one; for NVIDIA, what is a hazard on every device.
    ``headers`` are the texts of the library's own headers: what they define is not missing, and
    their constants are known.
    """
    platform = Platform(target)
    known = tuple(_header(header, platform.amd) for header in headers)
    source = Source(text, name, amd=platform.amd, headers=known)
    hazards = set()
    for rule in _BUILD if source.build_file else _CODE:
        for match in rule(source, platform):
            function = None if source.build_file else source.function_at(match.at)
            hazards.add(
                Hazard(
                    match.code,
                    " ".join(match.message.split()),
                    name,
                    source.line(match.at),
                    source.column(match.at),
                    function.name if function and function.kernel else "",
                    match.level,
                )
            )
    return tuple(sorted(hazards, key=lambda h: (h.line, h.column, h.code, h.message)))


@lru_cache(maxsize=512)
def _header(text: str, amd: bool) -> Source:
    return Source(text, "header.h", amd=amd)


__all__ = ["lint"]
