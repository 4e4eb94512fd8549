"""A figure of matplotlib's as a PNG, where matplotlib is installed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PAPER = "#1d2330", "#ffffff"


def painted(
    width_in: float, height_in: float, *, dpi: int, draw: Callable[[Figure], None]
) -> bytes | Missing:
    """The picture that ``draw`` leaves on an empty figure of this size."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return Missing("matplotlib is not installed", "pip install 'portkern[report]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an op's name may hold glyphs that the font lacks
        figure = Figure((width_in, height_in), dpi=dpi, facecolor=PAPER)
        FigureCanvasAgg(figure)
        draw(figure)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
