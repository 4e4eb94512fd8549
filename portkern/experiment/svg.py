"""Paints a picture as SVG. Colours are properties of the page's style: ``--c0``, ``--quiet``."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from portkern.experiment.shapes import (
    FONT_PX,
    Area,
    ChartText,
    Colour,
    Dot,
    DrawnLine,
    Picture,
    Point,
    Rectangle,
    Shape,
)
from portkern.printable import printable


def paint(picture: Picture) -> Markup:
    head = Markup('<svg viewBox="0 0 {:g} {:g}" font-size="{}" role="img" aria-label="{}">').format(
        picture.width, picture.height, FONT_PX, printable(picture.label)
    )
    return Markup("\n").join([head, *map(_element, picture.shapes), Markup("</svg>")])


def _element(shape: Shape) -> Markup:
    match shape:
        case DrawnLine():
            return _line(shape)
        case Area():
            return Markup('<polygon points="{}" fill="{}" fill-opacity="{:g}"/>').format(
                _joined(shape.points), _paint(shape.colour), shape.opacity
            )
        case Rectangle():
            return Markup(
                '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}">{}</rect>'
            ).format(
                shape.x,
                shape.y,
                shape.width,
                shape.height,
                _paint(shape.colour),
                _tooltip(shape.tooltip),
            )
        case Dot():
            return Markup(
                '<circle{} cx="{:.1f}" cy="{:.1f}" r="{:g}" fill="{}">{}</circle>'
            ).format(
                Markup(' class="hidden"') if shape.hidden else "",
                shape.x,
                shape.y,
                shape.radius,
                _paint(shape.colour),
                _tooltip(shape.tooltip),
            )
        case ChartText():
            return Markup(
                '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="{}"{}>{}</text>'
            ).format(
                shape.x,
                shape.y,
                shape.anchor,
                _paint(shape.colour),
                Markup(' font-weight="600"') if shape.bold else "",
                printable(shape.text),
            )


def _line(line: DrawnLine) -> Markup:
    dashes = " ".join(f"{length:g}" for length in line.dashes)
    return Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="{:g}"{}{}/>').format(
        _joined(line.points),
        _paint(line.colour),
        line.width,
        Markup(' stroke-opacity="{:g}"').format(line.opacity) if line.opacity != 1 else "",
        Markup(' stroke-dasharray="{}"').format(dashes) if dashes else "",
    )


def _tooltip(text: str) -> Markup:
    return Markup("<title>{}</title>").format(printable(text)) if text else Markup("")


def _paint(colour: Colour) -> str:
    return f"var(--c{colour})" if isinstance(colour, int) else f"var(--{colour})"


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
