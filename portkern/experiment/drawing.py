"""Charts as pictures: where lines, intervals, ticks, bars and labels come to lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portkern.experiment.section import Bars, Chart, ChartLine, Section, percent, times
from portkern.experiment.shapes import (
    COLOURS,
    Area,
    ChartText,
    Dot,
    DrawnLine,
    Picture,
    Point,
    Rectangle,
    Shape,
    text_width,
)
from portkern.experiment.statistics import Estimate

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 140, 12, 36
#: Between the baselines of two labels.
APART = 15
#: Dashes tell lines apart beside their colours, for people who cannot tell the colours apart.
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
BAR, GAP, NAMES = 20, 10, 150
#: Sizes of the key to the bars' colours: a line's height, a sample's side, and the gap after a
#: name.
KEY, SWATCH, KEY_GAP = 20, 10, 16


def pictures(section: Section) -> list[Picture]:
    """The pictures of a section: its charts that have a value, then its bars."""
    charts = [draw(chart) for chart in section.charts if chart.shown]
    return charts + [draw_bars(bars) for bars in section.bars]


@dataclass(frozen=True)
class _Frame:
    """Where the axes of a chart lie, and what they span: ``first`` to ``last``, ``low`` to
    ``high``."""

    first: int
    last: int
    low: float
    high: float
    right: float
    left: float = LEFT
    bottom: float = HEIGHT - BOTTOM

    @classmethod
    def of(cls, chart: Chart) -> _Frame:
        """A frame with room at the right for the names, which leaves at least half of the picture
        for the lines."""
        last = max(chart.first + len(line.points) - 1 for line in chart.lines)
        names = max(text_width(line.name, bold=True) for line in chart.lines)
        right = max(min(WIDTH - RIGHT, WIDTH - 11 - names), WIDTH / 2)
        return cls(chart.first, last, *span(chart), right)

    def place(self, x: float, y: float) -> Point:
        """The place of a value in the picture, in px."""
        across = (x - self.first) / max(self.last - self.first, 1)
        up = (y - self.low) / (self.high - self.low)
        return (
            self.left + (self.right - self.left) * across,
            self.bottom - (self.bottom - TOP) * up,
        )


def draw(chart: Chart) -> Picture:
    """Draws a chart that has at least one value."""
    frame = _Frame.of(chart)
    bands: list[Shape] = []
    lines: list[Shape] = []
    dots: list[Shape] = []
    ends: list[tuple[str, Dot]] = []
    for number, line in enumerate(chart.lines):
        for piece in _pieces(line, chart.first):
            bands += _band(piece, frame, number % COLOURS)
            lines += _path(piece, frame, number)
        own = _dots(number, line, chart, frame)
        dots += own
        ends += [(line.name, dot) for dot in own[-1:]]
    shapes = [*_grid(chart, frame), *bands, *lines, *dots, *_labels(ends, frame)]
    return Picture(chart.title, _in_words(chart), WIDTH, HEIGHT, tuple(shapes))


def _in_words(chart: Chart) -> str:
    ends = [
        f"{line.name} {_value(chart, *piece[-1])}"
        for line in chart.lines
        for piece in list(_pieces(line, chart.first))[-1:]
    ]
    return f"{chart.title} over {chart.across}, at last: {'; '.join(ends)}"


def _value(chart: Chart, x: int, estimate: Estimate) -> str:
    return f"{chart.across} {x}: {(percent if chart.percent else times)(estimate)}"


def _grid(chart: Chart, frame: _Frame) -> Iterator[Shape]:
    """A line for each tick of the values, and the texts of both axes."""
    for value in ticks(frame.low, frame.high):
        _, y = frame.place(frame.first, value)
        yield DrawnLine(((frame.left, y), (frame.right, y)), "line")
        yield ChartText(frame.left - 7, y + 4, axis_text(value, chart), "end")
    for count in whole(frame.first, frame.last):
        x, _ = frame.place(count, frame.low)
        yield ChartText(x, frame.bottom + 17, f"{count:g}", "middle")
    yield ChartText((frame.left + frame.right) / 2, HEIGHT - 3, chart.across, "middle")


def _band(piece: Sequence[tuple[int, Estimate]], frame: _Frame, colour: int) -> Iterator[Shape]:
    """The intervals of neighbouring values; of a value without neighbours a bar."""
    if not any(estimate.ci95 for _, estimate in piece):
        return
    upper = [frame.place(x, estimate.ends[1]) for x, estimate in piece]
    lower = [frame.place(x, estimate.ends[0]) for x, estimate in piece]
    if len(piece) == 1:
        yield DrawnLine((*upper, *lower), colour, width=2, opacity=0.5)
    else:
        yield Area((*upper, *reversed(lower)), colour, opacity=0.13)


def _path(piece: Sequence[tuple[int, Estimate]], frame: _Frame, number: int) -> Iterator[Shape]:
    if len(piece) > 1:
        points = tuple(frame.place(x, estimate.value) for x, estimate in piece)
        dashes = DASHES[number % len(DASHES)]
        yield DrawnLine(points, number % COLOURS, width=2, dashes=dashes)


def _dots(number: int, line: ChartLine, chart: Chart, frame: _Frame) -> list[Dot]:
    """A dot at each value; only those that no line passes through are seen at once."""
    return [
        Dot(
            *frame.place(x, estimate.value),
            number % COLOURS,
            f"{line.name}, {_value(chart, x, estimate)}",
            hidden=len(piece) > 1,
        )
        for piece in _pieces(line, chart.first)
        for x, estimate in piece
    ]


def _labels(ends: Sequence[tuple[str, Dot]], frame: _Frame) -> Iterator[Shape]:
    """Names at the right, each led to from the last value of its line."""
    heights = spaced([dot.y for _, dot in ends], TOP + 8, frame.bottom)
    for (name, dot), y in zip(ends, heights, strict=True):
        yield DrawnLine(((dot.x, dot.y), (frame.right + 8, y)), dot.colour, opacity=0.5)
        yield ChartText(frame.right + 11, y + 4, name, colour=dot.colour, bold=True)


def span(chart: Chart) -> tuple[float, float]:
    """The range of the axis: 0 to 1 for shares, else that of the values with a little room."""
    if chart.percent:
        return 0.0, 1.0
    ends = [end for estimate in chart.shown for end in estimate.ends]
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


def _pieces(line: ChartLine, first: int) -> Iterator[list[tuple[int, Estimate]]]:
    """Runs of values without a gap."""
    piece: list[tuple[int, Estimate]] = []
    for x, estimate in enumerate(line.points, first):
        if estimate is not None:
            piece.append((x, estimate))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def draw_bars(bars: Bars) -> Picture:
    key, top = _key(bars.parts)
    shapes: list[Shape] = list(key)
    names = max([text_width(name) + 8 for name, _ in bars.bars], default=0)
    left = min(max(NAMES, names), WIDTH / 2)
    for k, (name, counts) in enumerate(bars.bars):
        shapes += _bar(name, counts, bars.parts, (left, top + k * (BAR + GAP)))
    height = top + len(bars.bars) * (BAR + GAP)
    return Picture(
        bars.title, f"{bars.title}; the table below has the numbers", WIDTH, height, tuple(shapes)
    )


def _key(names: Sequence[str]) -> tuple[list[Shape], float]:
    """The parts' names beside their colours, in as many lines as they need; where it ends."""
    shapes: list[Shape] = []
    x, y = 0.0, 0.0
    for number, name in enumerate(names):
        width = SWATCH + 5 + text_width(name)
        if x and x + width > WIDTH:
            x, y = 0.0, y + KEY
        shapes.append(Rectangle(x, y + 3, SWATCH, SWATCH, number % COLOURS))
        shapes.append(ChartText(x + SWATCH + 5, y + 12, name))
        x += width + KEY_GAP
    return shapes, y + KEY + GAP


def _bar(name: str, counts: Sequence[int], parts: Sequence[str], at: Point) -> Iterator[Shape]:
    """A bar of full length, whatever its counts come to; none when they are all 0."""
    (x, y), total = at, sum(counts) or 1
    yield ChartText(x - 8, y + 14, name, "end")
    room = WIDTH - 8 - x
    for number, count in enumerate(counts):
        if not count:
            continue
        width = room * count / total
        tooltip = f"{name}: {count} of {total} {parts[number]}"
        yield Rectangle(x, y, width, BAR, number % COLOURS, tooltip)
        if width > 18:
            yield ChartText(x + width / 2, y + 14, str(count), "middle", "on", bold=True)
        x += width
