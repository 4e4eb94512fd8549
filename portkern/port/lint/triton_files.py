"""Triton kernels in Python: settings and defaults that differ between vendors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source, split
from portkern.simt.diagnostics import Severity

_DOT = re.compile(r"\b(?:tl|triton\.language)\.dot\s*(?=\()")
_WARPS = re.compile(r"\bnum_warps\s*=\s*(\d+)|[\"']num_warps[\"']\s*:\s*(\d+)")
_DESCRIPTOR = re.compile(
    r"\b(?:tl\.make_tensor_descriptor|TensorDescriptor|tl\._experimental_\w*descriptor\w*)\b"
)
_MOST_THREADS = 1024


def _is_triton(source: Source) -> bool:
    return source.name.endswith(".py") and "triton" in source.words


def dots(source: Source, platform: Platform) -> Iterator[Match]:
    """PK056: tl.dot with the vendor's default precision."""
    if not platform.amd or not _is_triton(source):
        return
    for match in _DOT.finditer(source.code):
        close = source.partner(match.end())
        arguments = split(source.code[match.end() + 1 : close]) if close > 0 else []
        if not any(
            argument.startswith(("input_precision", "allow_tf32")) for argument in arguments
        ):
            message = "tl.dot computes in tf32 on NVIDIA and in ieee here; state input_precision"
            yield Match("PK056", match.start(), message)


def warps(source: Source, platform: Platform) -> Iterator[Match]:
    """PK057: more threads than a block can have, and tensor descriptors."""
    if not platform.amd or not _is_triton(source):
        return
    width = 64 if platform.wave64 else 32
    for match in _WARPS.finditer(source.quoted):
        count = int(match[1] or match[2])
        if count * width > _MOST_THREADS:
            message = (
                f"num_warps={count} is {count * width} threads on {platform.name}, above "
                f"{_MOST_THREADS}; use {_MOST_THREADS // width}"
            )
            yield Match("PK057", match.start(), message)
    for match in _DESCRIPTOR.finditer(source.code):
        message = f"{match[0]}: {platform.name} has no tensor descriptors; use pointers and masks"
        yield Match("PK057", match.start(), message, Severity.WARNING)


RULES: tuple[Rule, ...] = (dots, warps)
