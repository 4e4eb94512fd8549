"""Parts of SARIF 2.1.0 documents, which code hosting shows at the lines of a change.

A stranger's text is text alone: what SARIF would read as a link or a placeholder is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import quote

from portkern.printable import printable

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"
#: Characters of a message.
_MOST = 2000
_ESCAPED = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})


def document(
    rules: Sequence[Mapping[str, object]], results: Sequence[Mapping[str, object]], **run: object
) -> dict[str, object]:
    """The document of one run of portkern, with further properties of the ``run``."""
    driver = {"name": "portkern", "version": version("portkern"), "rules": rules}
    only = {"tool": {"driver": driver}, **run, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [only]}


def location(path: str, line: int) -> dict[str, object]:
    """A place in a file, whose path is relative to the root; lines count from 1, and 0 is the
    whole file."""
    place: dict[str, object] = {
        "artifactLocation": {"uri": quote(os.fsencode(path)), "uriBaseId": _ROOT}
    }
    if line > 0:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def text(lines: Iterable[str]) -> str:
    """A message, cut off where it is very long."""
    whole = "\n".join(printable(line) for line in lines)
    shown = whole if len(whole) <= _MOST else f"{whole[:_MOST]}…"
    return shown.translate(_ESCAPED)
