"""Comparison of what two runs of a program printed: numbers nearly equal, times and names of
devices ignored."""

from __future__ import annotations

import re

#: A printed number is rounded, and what it counts may have been summed in another order.
RELATIVE = 1e-3
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_OF_THE_MACHINE = re.compile(
    r"\b(time|elapsed|took|duration|latency|bandwidth|throughput|speed\w*|device|gpu|compute|"
    r"cuda|hip|multiprocessors?|warp\w*|sms?|ms|us|ns|msec|usec|secs?|seconds?|s|[GMT]B/s|"
    r"[GMT]i?B/s|[GMT]?FLOPS?/?s?|[GMT]flop/s)\b",
    re.IGNORECASE,
)


def difference(original: str, ported: str) -> str:
    """The first line that differs, in words; '' if none does."""
    left, right = _lines(original), _lines(ported)
    for a, b in zip(left, right, strict=False):
        if not _alike(a, b):
            return f"it printed {_short(b)}, the original {_short(a)}"
    if len(left) != len(right):
        return f"it printed {len(right)} lines, the original {len(left)}"
    return ""


def _lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not _OF_THE_MACHINE.search(line)]


def _alike(a: str, b: str) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    return all(
        abs(x - y) <= RELATIVE * max(abs(x), abs(y))
        for x, y in zip(map(float, _NUMBER.findall(a)), map(float, _NUMBER.findall(b)), strict=True)
    )


def _short(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:77] + "...")
