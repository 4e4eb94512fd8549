"""``attempts.html`` and ``attempts.md``: a run's attempts as a tree, with what each was thought to
do, what became of it, and how it differs from its parent."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from portkern.agent.attempt import Attempt, Status
from portkern.agent.log import Log
from portkern.printable import printable
from portkern.records import atomic_write

#: Lines of a difference that are shown.
MOST_LINES = 400
WIDTH, HEIGHT, MARGIN = 720, 200, 28
_SPECIAL = re.compile(r"([\\`*_{}\[\]~#$|])")


class DiffLine(NamedTuple):
    """``kind``: ``add``, ``del``, ``at`` (where the next lines are), or empty."""

    kind: str
    text: str


@dataclass(frozen=True)
class PageNode:
    """``lines`` are the source's, or how it differs from the parent's where it is ``compared``;
    ``share``: of the best score."""

    attempt: Attempt
    level: int
    lines: Sequence[DiffLine]
    compared: bool
    share: float

    @property
    def result(self) -> str:
        attempt = self.attempt
        if attempt.correct:
            untimed = f"correct, {attempt.ranked or 'not timed'}"
            return f"{attempt.score:.3g}×" if attempt.speedups else untimed
        return str(attempt.status).replace("_", " ")


@dataclass(frozen=True)
class Curve:
    """A drawing of the best score so far over attempts: ``line`` are its corners, ``dots`` the
    correct attempts, ``level`` the height of 1, where the framework is, ``end`` that of ``top``."""

    line: str
    dots: Sequence[tuple[str, str]]
    level: str
    end: str
    top: float
    count: int


def write(log: Log, folder: Path, summary: Mapping[str, object]) -> None:
    """Raises StorageError."""
    nodes = list(_tree(log))
    for name in ("attempts.html", "attempts.md"):
        text = (
            _environment(name.endswith("html"))
            .get_template(f"{name}.j2")
            .render(
                nodes=nodes,
                summary=summary,
                version=version("portkern"),
                title=folder.name,
                curve=_curve(log),
                best=summary.get("best"),
                width=WIDTH,
                height=HEIGHT,
                margin=MARGIN,
                counts=[(s, n) for s in Status if (n := sum(1 for a in log if a.status is s))],
            )
        )
        atomic_write.write(folder / name, text.rstrip() + "\n")


@cache
def _environment(escape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("portkern.agent"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["plain"] = _plain
    return environment


def _plain(text: str) -> str:
    """The text as Markdown that shows it literally, on one line, also inside a table."""
    text = " ".join(printable(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _tree(log: Log) -> Iterator[PageNode]:
    """The attempts as a tree, each below its first parent, in the order of the log."""
    top = max((attempt.score for attempt in log), default=0.0)
    below: dict[str, list[Attempt]] = {}
    for attempt in log:
        parent = (*attempt.parents, "")[0]
        below.setdefault(parent if parent in log else "", []).append(attempt)
    stack = [(attempt, 0) for attempt in reversed(below.get("", []))]
    while stack:
        attempt, level = stack.pop()
        before = next((attempt.source for attempt in log.some(attempt.parents[:1])), "")
        lines = difference(before, attempt.source)
        yield PageNode(attempt, level, lines, bool(before), attempt.score / top if top else 0.0)
        stack += [(child, level + 1) for child in reversed(below.get(attempt.id, []))]


def difference(before: str, after: str) -> list[DiffLine]:
    """The whole of ``after`` where there was nothing, nothing where there is nothing now."""
    if not before or not after:
        return _shortened([DiffLine("", text) for text in after.splitlines()])
    unified = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    kinds = {"+": "add", "-": "del", "@": "at"}
    return _shortened([DiffLine(kinds.get(text[:1], ""), text) for text in list(unified)[2:]])


def _shortened(lines: Sequence[DiffLine]) -> list[DiffLine]:
    left = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([DiffLine("at", f"… {left} more lines")] if left > 0 else [])]


def _curve(log: Log) -> Curve | None:
    """The curve of a run's best; None where nothing was timed."""
    values = log.curve()
    top = max((attempt.score for attempt in log if attempt.speedups), default=0.0)
    if not top:
        return None
    across, down = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    highest = max(top, values[-1], 1.0)

    def x(k: float) -> str:
        return f"{MARGIN + across * k / len(values):.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT - MARGIN - down * value / highest:.1f}"

    corners = [f"{x(k)},{y(v)} {x(k + 1)},{y(v)}" for k, v in enumerate(values) if v]
    dots = [(x(k + 0.5), y(attempt.score)) for k, attempt in enumerate(log) if attempt.correct]
    return Curve(" ".join(corners), dots, y(1.0), y(values[-1]), values[-1], len(values))
