"""Which tests `make test` runs and which only `make test-full`: the marker ``full``, by rule.

A test that takes more than two seconds is ``full``, unless it guards a backend's contract,
the verdict on a cheat, or a record's survival. Of the same test over many cases, the first of each
kind that is not full by itself is quick and the rest are full:

    @pytest.mark.sampled("case", by="caught_by")    # a value of the parameter has the kind
    @pytest.mark.sampled("backend")                 # the parameter is the kind
    @pytest.mark.sampled()                          # all cases are of one kind
    @pytest.mark.sampled("case", quick=2)           # of two kinds a day tries one in `make test`

Of those that are full because there are many a commit draws a tenth, by its date: what mends a
test that failed is judged by the same tests, and tomorrow's commits draw others. Of a test that is
full by itself the first case is always run, and the others are many. `make test-all` runs them all,
as does pytest without `--drawn`.

    @pytest.mark.drawn     # full, and its first case is drawn as well: half a minute, where a
                           # shorter test guards the same
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Hashable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from portkern.testing import BackendContract

#: All kernels in all dtypes and on all architectures. Without it they take turns.
EVERYTHING = os.environ.get("PORTKERN_CATALOGUE") == "all"
#: A day draws one of so many.
DRAWN_OF = 10
#: The fixture of the contract's tests that run kernels; those without it are cheap.
_RUNS = "running"


def assign(items: Iterable[pytest.Item], day: str) -> None:
    """Mark as full what is not the first case of its kind. The order is the files' own."""
    seen: set[Hashable] = set()
    for item in items:
        by_itself = _is(item, "full") or _is(item, "drawn")
        kind = _test(item) if by_itself else _kind(item)
        if kind is None:
            continue
        if kind in seen:
            item.add_marker("full")
            item.add_marker("drawn")
        elif _is(item, "drawn") or not (by_itself or _draws(day, item, _quick_of(item))):
            item.add_marker("full")
        seen.add(kind)


def _is(item: pytest.Item, marker: str) -> bool:
    return bool(item.get_closest_marker(marker))


def left_out(items: Iterable[pytest.Item], day: str) -> list[pytest.Item]:
    """The tests marked ``drawn`` that other days draw."""
    return [item for item in items if _is(item, "drawn") and not _draws(day, item, DRAWN_OF)]


def _draws(day: str, item: pytest.Item, of: int) -> bool:
    """Whether the day draws the item, as it does one of ``of``."""
    return hashlib.sha256(f"{day} {item.nodeid}".encode()).digest()[0] % of == 0


def _quick_of(item: pytest.Item) -> int:
    mark = item.get_closest_marker("sampled")
    return int(mark.kwargs.get("quick", 1)) if mark else 1


def day_of(root: Path) -> str:
    """The date of the checkout's commit, as in 2026-11-29; empty where there is none."""
    command = ["git", "-C", str(root), "show", "--no-patch", "--format=%cs", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _test(item: pytest.Item) -> tuple[Hashable, ...]:
    """The test of which the item is a case."""
    return (item.path, item.originalname) if isinstance(item, pytest.Function) else (item.nodeid,)


def _kind(item: pytest.Item) -> Hashable | None:
    """The kind of which the item is a sample; None where every case counts."""
    if not isinstance(item, pytest.Function):
        return None
    values = item.callspec.params if hasattr(item, "callspec") else {}
    test = _test(item)
    if isinstance(item.instance, BackendContract) and _RUNS in item.fixturenames:
        return (*test, values.get("backend", ""))
    mark = item.get_closest_marker("sampled")
    if mark is None:
        return None
    by: str = mark.kwargs.get("by", "")
    return (*test, *(_told(values[name], by) for name in mark.args))


def _told(value: Any, by: str) -> Hashable:
    told = attrgetter(by)(value) if by else value
    return told if isinstance(told, Hashable) else repr(told)
