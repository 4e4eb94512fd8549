"""The value that a ``switch`` of host code gives a name at the launch in one of its cases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SWITCH = re.compile(r"\bswitch\s*\(\s*(\w+)\s*\)\s*\{")
_LABEL = re.compile(r"\bcase\s+(\d+)\s*:|\bdefault\s*:")
#: The arguments of the template that a launch is of, before its ``<<<``.
_INSTANCE = re.compile(r"<([^<>;]*)>\s*<*$")
#: A switch is looked for so many characters before a launch.
_FAR = 20_000


def told(text: str, launch: int) -> Mapping[str, int]:
    """The value of the name that the innermost switch around a launch asks for: its case's. That of
    ``default`` is the one that the instance has, where each case's is its own instance's. The
    offset of the launch is within its ``<<<``."""
    for switch in reversed([*_SWITCH.finditer(text, max(launch - _FAR, 0), launch)]):
        body = text[switch.end() : launch]
        if _is_closed(body):
            continue
        labels = [*_LABEL.finditer(body)]
        if not labels:
            return {}
        value = labels[-1][1] or _of_default(text, switch.end(), launch, labels)
        return {switch[1]: int(value)} if value else {}
    return {}


def _is_closed(body: str) -> bool:
    depth = 0
    for brace in re.findall(r"[{}]", body):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return True
    return False


def _of_default(text: str, begin: int, launch: int, labels: list[re.Match[str]]) -> str:
    own = _numbers(text, launch)
    ends = [*(begin + label.start() for label in labels[1:]), launch]
    cases = zip(labels, ends, strict=True)
    alike = all(
        label[1] in [n for at in _instances(text, begin + label.end(), end) for n in at]
        for label, end in cases
        if label[1]
    )
    return own[0] if alike and len(own) == 1 and len(labels) > 1 else ""


def _instances(text: str, begin: int, end: int) -> Iterator[list[str]]:
    for found in re.finditer(r"\w\s*<([^<>;]*)>", text[begin:end]):
        yield re.findall(r"\b\d+\b", found[1])


def _numbers(text: str, launch: int) -> list[str]:
    found = _INSTANCE.search(text[max(launch - 200, 0) : launch])
    return re.findall(r"\b\d+\b", found[1]) if found else []
