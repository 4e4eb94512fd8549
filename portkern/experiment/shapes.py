"""The shapes that a picture is made of. All coordinates are in px, x to the right, y down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FONT_PX = 12

Point = tuple[float, float]
#: A number of the palette, or a role: ``quiet`` of texts, ``line`` of grids, ``on`` of what stands
#: on a coloured ground.
Colour = int | Literal["quiet", "line", "on"]
#: As many colours has the palette.
COLOURS = 10


@dataclass(frozen=True)
class DrawnLine:
    """Straight or bent, through two points or more; ``dashes``: lengths drawn and left out."""

    points: tuple[Point, ...]
    colour: Colour
    width: float = 1
    opacity: float = 1
    dashes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Area:
    """A polygon."""

    points: tuple[Point, ...]
    colour: Colour
    opacity: float


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    colour: Colour
    tooltip: str = ""


@dataclass(frozen=True)
class Dot:
    """A disc; ``hidden`` until it is pointed at, where the medium knows of pointing."""

    x: float
    y: float
    colour: Colour
    tooltip: str
    hidden: bool = False
    radius: float = 5


@dataclass(frozen=True)
class ChartText:
    """``x`` is where it starts, has its middle or ends; ``y`` its baseline."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    colour: Colour = "quiet"
    bold: bool = False


Shape = DrawnLine | Area | Rectangle | Dot | ChartText


@dataclass(frozen=True)
class Picture:
    """``label`` says in words what is seen; later shapes lie upon earlier ones."""

    title: str
    label: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


def text_width(text: str, *, bold: bool = False) -> float:
    """About, in px: the fonts of the media differ. Rather too wide than too narrow."""
    ems = sum(0.38 if c in "fijlrt.,:;|!'()[] " else 0.92 if c in "mwMW" else 0.64 for c in text)
    return ems * FONT_PX * (1.12 if bold else 1)
