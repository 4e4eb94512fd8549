"""``experiment.png``: the charts as one picture, for slides and for pages that show no HTML."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from portkern.experiment.drawing import DASHES, axis_text, span, ticks, whole
from portkern.experiment.section import Bars, Chart, ChartLine, Section
from portkern.report.table import clean
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PAPER, QUIET = "#1d2330", "#ffffff", "#d8dce3"
#: The page's, in its light dress.
COLOURS = (
    "#0b5c8a",
    "#c2570c",
    "#2a7a3f",
    "#8b3a9c",
    "#a3004f",
    "#6b6400",
    "#00807f",
    "#5b6473",
    "#7a4a2b",
    "#3f4fc4",
)
PANEL_IN = (6.4, 3.4)
# Otherwise a name with two dollar signs is read as TeX, and bad TeX raises.
PLAIN: dict[str, Any] = {"parse_math": False}


def render(title: str, sections: Sequence[Section]) -> bytes | Missing:
    panels: list[Chart | Bars] = []
    for part in sections:
        panels += [chart for chart in part.charts if chart.shown]
        panels += part.bars
    if not panels:
        return Missing("there is nothing to draw")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return Missing("matplotlib is not installed", "pip install 'portkern[report]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an operator's name may hold glyphs that the font lacks
        across = min(len(panels), 2)
        down = -(-len(panels) // across)
        size = (PANEL_IN[0] * across, PANEL_IN[1] * down + 0.5)
        figure = Figure(size, dpi=120, facecolor=PAPER, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(clean(title), size=12, color=INK, x=0.02, ha="left", **PLAIN)
        for k, panel in enumerate(panels, 1):
            axes = figure.add_subplot(down, across, k)
            _bars(axes, panel) if isinstance(panel, Bars) else _chart(axes, panel)
            _dress(axes, panel.title)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _chart(axes: Axes, chart: Chart) -> None:
    for k, line in enumerate(chart.lines):
        _line(axes, line, chart.first, COLOURS[k % len(COLOURS)], DASHES[k % len(DASHES)])
    last = max(chart.first + len(line.points) - 1 for line in chart.lines)
    low, high = span(chart)
    axes.set_ylim(low, high)
    axes.set_xticks(whole(chart.first, last))
    axes.set_yticks(at := ticks(low, high), [axis_text(y, chart) for y in at])
    axes.set_xlabel(chart.across, size=9, color=INK)
    axes.grid(axis="y", color=QUIET, linewidth=0.6)
    if len(chart.lines) > 1:
        _legend(axes)


def _line(axes: Axes, line: ChartLine, first: int, colour: str, dashes: str) -> None:
    nothing = float("nan")
    xs = list(range(first, first + len(line.points)))
    middle = [point.value if point else nothing for point in line.points]
    low, high = ([point.ends[end] if point else nothing for point in line.points] for end in (0, 1))
    style: str | tuple[float, tuple[float, ...]] = (
        (0, tuple(map(float, dashes.split()))) if dashes else "-"
    )
    label = clean(line.name)
    axes.plot(xs, middle, color=colour, linestyle=style, linewidth=1.7, label=label, marker=".")
    axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)


def _bars(axes: Axes, bars: Bars) -> None:
    names = [clean(name) for name, _ in bars.bars]
    left = [0] * len(names)
    for k, part in enumerate(bars.parts):
        counts = [counts[k] for _, counts in bars.bars]
        axes.barh(range(len(names)), counts, left=left, color=COLOURS[k % len(COLOURS)], label=part)
        left = [a + b for a, b in zip(left, counts, strict=True)]
    axes.set_yticks(range(len(names)), names, size=8.5, **PLAIN)
    axes.invert_yaxis()
    _legend(axes)


def _legend(axes: Axes) -> None:
    for text in axes.legend(fontsize=8, frameon=False).get_texts():
        text.set_parse_math(False)


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(clean(title), size=10, color=INK, loc="left", **PLAIN)
    axes.tick_params(colors=INK, labelsize=8.5)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(QUIET)
