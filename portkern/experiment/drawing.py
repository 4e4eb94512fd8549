"""Charts as shapes of an SVG: where lines, intervals, ticks and labels come to lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from portkern.experiment.section import Bars, Chart, ChartLine, percent, times
from portkern.experiment.statistics import Estimate

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 140, 12, 36
#: Between the baselines of two labels.
APART = 15
#: Beside their colours lines differ in dashes, for who does not see the one.
DASHES = ("", "7 3", "2 3", "9 3 2 3")
#: As many colours has the page.
COLOURS = 10
BAR, GAP, NAMES = 20, 10, 150

Point = tuple[float, float]
_Place = Callable[[float, float], Point]


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    told: str


@dataclass(frozen=True)
class Drawn:
    """``bands`` and ``paths`` are in pieces where values are missing; ``y`` is where the label
    stands, at the right of all."""

    name: str
    number: int
    dashes: str
    bands: tuple[str, ...]
    paths: tuple[str, ...]
    dots: tuple[Dot, ...]
    y: float

    @property
    def colour(self) -> str:
        return f"var(--c{self.number % COLOURS})"


@dataclass(frozen=True)
class Drawing:
    title: str
    across: str
    lines: tuple[Drawn, ...]
    xs: tuple[Tick, ...]
    ys: tuple[Tick, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM

    @property
    def told(self) -> str:
        ends = "; ".join(f"{line.name} {line.dots[-1].told}" for line in self.lines if line.dots)
        return f"{self.title} over {self.across}, at last: {ends}"


def draw(chart: Chart) -> Drawing:
    """Of a chart with one value at least."""
    last = max(chart.first + len(line.points) - 1 for line in chart.lines)
    low, high = span(chart)
    across = max(last - chart.first, 1)

    def place(x: float, y: float) -> Point:
        right = LEFT + (WIDTH - LEFT - RIGHT) * (x - chart.first) / across
        return right, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low)

    drawn = [_drawn(k, line, chart, place) for k, line in enumerate(chart.lines)]
    drawn = [one for one in drawn if one.dots]
    ends = spaced([one.y for one in drawn], TOP + 8, HEIGHT - BOTTOM)
    lines = [replace(one, y=y) for one, y in zip(drawn, ends, strict=True)]
    xs = [Tick(place(x, low)[0], f"{x:g}") for x in whole(chart.first, last)]
    ys = [Tick(place(chart.first, y)[1], axis_text(y, chart)) for y in ticks(low, high)]
    return Drawing(chart.title, chart.across, tuple(lines), tuple(xs), tuple(ys))


def span(chart: Chart) -> tuple[float, float]:
    """Of the axis: all of 0 to 1 for shares, else what there is with a little room."""
    if chart.percent:
        return 0.0, 1.0
    ends = [end for one in chart.shown for end in one.ends]
    low, high = min(ends), max(ends)
    room = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    return (0.0 if low >= 0 and low - room < 0 else low - room), high + room


def axis_text(value: float, chart: Chart) -> str:
    return f"{value * 100:g} %" if chart.percent else f"{value:g}×"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers within."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def whole(first: int, last: int, about: int = 10) -> list[int]:
    """Counts along an axis, with its first and its last."""
    if last == first:
        return [first]
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, last)
    step = next(k for k in steps if (last - first) / k <= about)
    inner = [k for k in range(step, last, step) if k > first]
    return [first, *[k for k in inner if last - k >= step / 2 and k - first >= step / 2], last]


def spaced(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Labels as near to where they belong as they do not lie upon each other."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed: list[float] = []
    for k in order:
        placed.append(max(wanted[k], placed[-1] + APART if placed else top))
    floor = bottom
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], floor)
        floor = placed[place] - APART
    return [placed[order.index(k)] for k in range(len(wanted))]


def _drawn(number: int, line: ChartLine, chart: Chart, place: _Place) -> Drawn:
    dots, paths, bands = [], [], []
    for piece in _pieces(line, chart.first):
        middle = [place(x, one.value) for x, one in piece]
        upper = [place(x, one.ends[1]) for x, one in piece]
        lower = [place(x, one.ends[0]) for x, one in piece]
        paths.append(_joined(middle))
        if any(one.ci95 for _, one in piece):
            bands.append(_joined([*upper, *reversed(lower)]))
        dots += [
            Dot(*at, f"{chart.across} {x}: {(percent if chart.percent else times)(one)}")
            for at, (x, one) in zip(middle, piece, strict=True)
        ]
    dashes, y = DASHES[number % len(DASHES)], dots[-1].y if dots else 0.0
    return Drawn(line.name, number, dashes, tuple(bands), tuple(paths), tuple(dots), y)


def _pieces(line: ChartLine, first: int) -> Iterator[list[tuple[int, Estimate]]]:
    """Runs of values without a gap."""
    piece: list[tuple[int, Estimate]] = []
    for x, one in enumerate(line.points, first):
        if one is not None:
            piece.append((x, one))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


@dataclass(frozen=True)
class BarSegment:
    x: float
    width: float
    number: int
    text: str
    told: str

    @property
    def colour(self) -> str:
        return f"var(--c{self.number % COLOURS})"


@dataclass(frozen=True)
class Bar:
    name: str
    y: float
    parts: tuple[BarSegment, ...]


@dataclass(frozen=True)
class BarsDrawing:
    names: tuple[tuple[str, str], ...]  # with their colours
    bars: tuple[Bar, ...]
    width: float
    height: float
    left: float = NAMES


def draw_bars(given: Bars) -> BarsDrawing:
    room = WIDTH - NAMES - 8
    bars = []
    for k, (name, counts) in enumerate(given.bars):
        total, x, parts = sum(counts) or 1, float(NAMES), []
        for number, count in enumerate(counts):
            width = room * count / total
            told = f"{name}: {count} of {total} {given.parts[number]}"
            parts.append(BarSegment(x, width, number, str(count) if width > 18 else "", told))
            x += width
        bars.append(Bar(name, k * (BAR + GAP), tuple(part for part in parts if part.width)))
    names = tuple((name, f"var(--c{k % COLOURS})") for k, name in enumerate(given.parts))
    return BarsDrawing(names, tuple(bars), WIDTH, len(bars) * (BAR + GAP))
