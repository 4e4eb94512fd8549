"""Paints pictures into one PNG, two side by side, for pages that show no HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from portkern.experiment.shapes import (
    FONT_PX,
    Area,
    ChartText,
    Colour,
    Dot,
    DrawnLine,
    Picture,
    Rectangle,
    Shape,
)
from portkern.printable import printable
from portkern.report import canvas
from portkern.report.canvas import INK
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The page's, in its light dress.
ROLES = {"quiet": "#5b6473", "line": "#d8dce3", "on": "#ffffff"}
PALETTE = (
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
MARGIN, TITLE, HEADING = 24, 32, 26
#: Fonts and lines are measured in points, of which an inch has 72: px of a shape are points here.
PX_PER_INCH, DPI = 72, 96


def paint(title: str, pictures: Sequence[Picture]) -> bytes | Missing:
    if not pictures:
        return Missing("there is nothing to draw")
    across = min(len(pictures), 2)
    rows = [pictures[k : k + across] for k in range(0, len(pictures), across)]
    column = max(picture.width for picture in pictures) + MARGIN
    heights = [max(picture.height for picture in row) + HEADING + MARGIN for row in rows]
    width, height = MARGIN + column * across, MARGIN + TITLE + sum(heights)

    def draw(figure: Figure) -> None:
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        _text(axes, MARGIN, MARGIN + 14, title, INK, 16)
        top: float = MARGIN + TITLE
        for row, down in zip(rows, heights, strict=True):
            for k, picture in enumerate(row):
                _picture(axes, picture, MARGIN + k * column, top)
            top += down

    return canvas.painted(width / PX_PER_INCH, height / PX_PER_INCH, dpi=DPI, draw=draw)


def _picture(axes: Axes, picture: Picture, left: float, top: float) -> None:
    _text(axes, left, top + 14, picture.title, INK, FONT_PX + 1, bold=True)
    for shape in picture.shapes:
        _shape(axes, shape, left, top + HEADING)


def _shape(axes: Axes, shape: Shape, left: float, top: float) -> None:
    from matplotlib import patches

    colour = _colour(shape.colour)
    match shape:
        case DrawnLine():
            xs, ys = [left + x for x, _ in shape.points], [top + y for _, y in shape.points]
            # matplotlib's dashes are multiples of the line's width
            style = (0, [length / shape.width for length in shape.dashes]) if shape.dashes else "-"
            axes.plot(
                xs,
                ys,
                linestyle=style,
                color=colour,
                linewidth=shape.width,
                alpha=shape.opacity,
            )
        case Area():
            corners = [(left + x, top + y) for x, y in shape.points]
            axes.add_patch(patches.Polygon(corners, color=colour, alpha=shape.opacity, linewidth=0))
        case Rectangle():
            corner = left + shape.x, top + shape.y
            axes.add_patch(patches.Rectangle(corner, shape.width, shape.height, color=colour))
        case Dot() if not shape.hidden:
            axes.add_patch(
                patches.Circle((left + shape.x, top + shape.y), shape.radius, color=colour)
            )
        case ChartText():
            x, y = left + shape.x, top + shape.y
            _text(axes, x, y, shape.text, colour, FONT_PX, shape.anchor, bold=shape.bold)


def _text(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    colour: str,
    size: float,
    anchor: str = "start",
    *,
    bold: bool = False,
) -> None:
    axes.text(
        x,
        y,
        printable(text),
        color=colour,
        size=size,
        weight="bold" if bold else "normal",
        ha={"start": "left", "middle": "center", "end": "right"}[anchor],
        va="baseline",
        parse_math=False,  # otherwise two dollar signs are read as TeX, and bad TeX raises
    )


def _colour(colour: Colour) -> str:
    return PALETTE[colour] if isinstance(colour, int) else ROLES[colour]
