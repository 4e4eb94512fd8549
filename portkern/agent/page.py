"""``attempts.html`` and ``attempts.md``: a run's attempts as a tree, with what each was thought to
do, what became of it, and how it differs from its parent."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from portkern.agent.attempt import Attempt, Status
from portkern.agent.log import Log
from portkern.errors import StorageError

#: Lines of a difference that are shown.
MOST_LINES = 400
WIDTH, HEIGHT, MARGIN = 720, 200, 28


@dataclass(frozen=True)
class Node:
    attempt: Attempt
    level: int
    diff: str

    @property
    def result(self) -> str:
        one = self.attempt
        if one.correct:
            return f"{one.score:.3g}×" if one.speedups else "correct, not timed"
        return str(one.status).replace("_", " ")


def write(log: Log, folder: Path, summary: dict[str, Any]) -> None:
    """Raises StorageError."""
    nodes = list(_tree(log))
    for name in ("attempts.html", "attempts.md"):
        text = _environment(name.endswith("html")).get_template(f"{name}.j2").render(
            nodes=nodes, summary=summary, version=version("portkern"), title=folder.name,
            curve=_curve(log), best=summary.get("best"),
            counts=[(s, n) for s in Status if (n := sum(1 for a in log if a.status is s))],
        )  # fmt: skip
        path = folder / name
        try:
            path.write_text(text.rstrip() + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError.of(error, path) from error


@cache
def _environment(escape: bool) -> Environment:
    return Environment(
        loader=PackageLoader("portkern.agent"), autoescape=escape, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _tree(log: Log) -> Iterator[Node]:
    """Each attempt below its first parent, in the order of the log."""
    roots = [one for one in log if not log.some(one.parents[:1])]
    stack = [(one, 0) for one in reversed(roots)]
    below: dict[str, list[Attempt]] = {}
    for one in log:
        if one.parents:
            below.setdefault(one.parents[0], []).append(one)
    while stack:
        attempt, level = stack.pop()
        parents = log.some(attempt.parents[:1])
        yield Node(attempt, level, difference(parents[0] if parents else None, attempt))
        stack += [(child, level + 1) for child in reversed(below.get(attempt.id, []))]


def difference(parent: Attempt | None, attempt: Attempt) -> str:
    """As a unified diff; the whole source of an attempt without a parent."""
    if not attempt.source:
        return ""
    if parent is None or not parent.source:
        return _shortened(attempt.source.splitlines())
    return _shortened(
        list(
            difflib.unified_diff(
                parent.source.splitlines(), attempt.source.splitlines(),
                parent.id, attempt.id, lineterm="",
            )
        )
    )  # fmt: skip


def _shortened(lines: Sequence[str]) -> str:
    left = len(lines) - MOST_LINES
    shown = [*lines[:MOST_LINES], *([f"… {left} more lines"] if left > 0 else [])]
    return "\n".join(shown)


def _curve(log: Log) -> dict[str, Any] | None:
    """The best score so far over attempts, as points of a drawing; None without a correct one."""
    values = log.curve()
    if not values or not values[-1]:
        return None
    top = max(values)
    across, down = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(k: int, value: float) -> str:
        x = MARGIN + across * (k + 1) / len(values)
        return f"{x:.1f},{HEIGHT - MARGIN - down * value / top:.1f}"

    steps = [place(k, value) for k, value in enumerate(values)]
    dots = [place(k, one.score).split(",") for k, one in enumerate(log) if one.correct]
    return {
        "width": WIDTH, "height": HEIGHT, "margin": MARGIN, "line": " ".join(steps), "dots": dots,
        "top": f"{top:.3g}×", "count": len(values),
    }  # fmt: skip
