"""The sections of a report, before anybody draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portkern.experiment.statistics import Estimate

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

DASH = "–"


@dataclass(frozen=True)
class SectionTable:
    """Numbers are right-aligned: all columns but the first ``names``."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class ChartLine:
    """``points`` from the left; None where there is nothing to show."""

    name: str
    points: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Chart:
    """Lines over 1, 2, 3, …, from ``first``. ``percent``: values are shares, from 0 to 1."""

    title: str
    across: str
    lines: tuple[ChartLine, ...]
    percent: bool = False
    first: int = 1

    @property
    def shown(self) -> list[Estimate]:
        return [point for line in self.lines for point in line.points if point]


@dataclass(frozen=True)
class Bars:
    """Each bar is a whole whose parts have the names ``parts``."""

    title: str
    parts: tuple[str, ...]
    bars: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Section:
    title: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    bars: tuple[Bars, ...] = ()
    table: SectionTable | None = None


@dataclass(frozen=True)
class SectionAnswer:
    """``lead`` is the answer in words, ``numbers`` all of it as JSON, ``notes`` the cautions."""

    lead: str
    numbers: JsonObject
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = field(default=())


def percent(estimate: Estimate | None) -> str:
    return _told(estimate, ".0f", " %", scale=100)


def points(estimate: Estimate | None) -> str:
    """A difference of shares as a text, in percentage points."""
    return _told(estimate, "+.0f", scale=100, ends=".0f")


def times(estimate: Estimate | None) -> str:
    return _told(estimate, ".2f", "×")


def plain(estimate: Estimate | None) -> str:
    return _told(estimate, ".2f")


def _told(
    estimate: Estimate | None, form: str, unit: str = "", *, scale: float = 1, ends: str = ""
) -> str:
    """An estimate in words, with its interval where it has one, in the form ``ends`` or the
    same."""
    if estimate is None:
        return DASH
    low_high = [format(end * scale, ends or form) for end in estimate.ci95 or ()]
    interval = f" [{', '.join(low_high)}]" if low_high else ""
    return f"{estimate.value * scale:{form}}{unit}{interval}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def document(estimate: Estimate | None) -> JsonObject | None:
    """The estimate as JSON."""
    if estimate is None:
        return None
    return {
        "value": estimate.value,
        "ci95": list(estimate.ci95) if estimate.ci95 else None,
        "n": estimate.n,
    }
