"""``matrix.png``: the matrix as one picture, for slides and for pages that show no HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from portkern.printable import printable
from portkern.records.record import Evidence
from portkern.report import canvas
from portkern.report.canvas import INK, PAPER
from portkern.report.table import DASH, MatrixColumn, MatrixTable, TableCell, times
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

#: Beyond it no screen shows the picture, and matplotlib's limit of pixels is near.
MOST_CELLS = 3_000
CELL_IN = (0.86, 0.32)
#: The colour scale ends at a factor of 4 either way, as in the page.
LIMIT_LOG2 = 2.0
FAIL, EMPTY = "#a3004f", "#f1f2f4"
# Otherwise a name with two dollar signs is read as TeX, and bad TeX raises.
PLAIN: dict[str, Any] = {"parse_math": False}
RUNG = {
    Evidence.NONE: (DASH, EMPTY, None),
    Evidence.BUILT: ("built", "#e3e6eb", "////"),
    Evidence.EMULATED: ("emulated", "#d3d8e0", None),
    Evidence.EXECUTED: ("executed", "#c9d0da", None),
    Evidence.VERIFIED: ("verified", "#bfc6d1", None),
}
# Brown to blue through a near-white: told apart with any of the common colour-vision defects.
DIVERGING = ("#8a4b08", "#d1893a", "#f3d9b5", "#f5f5f2", "#b9d6ea", "#4b93c4", "#0b4f82")


def render(table: MatrixTable, *, title: str) -> bytes | Missing:
    shown = (len(table.ops) + 1) * len(table.supported)
    if shown > MOST_CELLS:
        return Missing(f"{shown} cells are more than a picture shows", "see matrix.html")
    across, down = _size(table)

    def draw(figure: Figure) -> None:
        axes = figure.add_axes((2.0 / across, 0.85 / down, 1 - 2.2 / across, 1 - 1.85 / down))
        _draw(axes, table)
        head = f"{printable(title)}\nspeedup vs eager, geometric mean of measured cells"
        figure.text(0.18 / across, 1 - 0.14 / down, head, va="top", size=11, color=INK, **PLAIN)
        _legend(figure, table, across, down)

    return canvas.painted(across, down, dpi=120, draw=draw)


def _rows_are_columns(table: MatrixTable) -> bool:
    """The longer side goes down: a picture 40 columns wide is unreadable on any page."""
    return len(table.supported) > len(table.ops)


def _size(table: MatrixTable) -> tuple[float, float]:
    sides = [len(table.ops) + 1, len(table.supported)]
    if not _rows_are_columns(table):
        sides.reverse()
    return max(7.5, 2.2 + CELL_IN[0] * sides[0]), max(3.0, 1.85 + CELL_IN[1] * sides[1])


def _draw(axes: Axes, table: MatrixTable) -> None:
    flip = _rows_are_columns(table)
    ops = [*table.ops, None]  # None: the column's own geomean
    for i, op in enumerate(ops):
        for j, column in enumerate(table.supported):
            x, y = (i, j) if flip else (j, i)
            _cell(axes, x, y, *_look(table, op, column))
    names = [printable(op) if op else "all ops" for op in ops]
    columns = [
        f"{c.tool} · {c.target}" if flip else f"{c.tool}\n{c.target}" for c in table.supported
    ]
    across, down = (names, columns) if flip else (columns, names)
    axes.set_xlim(0, max(len(across), 1))
    axes.set_ylim(max(len(down), 1), 0)
    axes.set_xticks([x + 0.5 for x in range(len(across))], across, size=8.5, **PLAIN)
    axes.set_yticks([y + 0.5 for y in range(len(down))], down, size=8.5, **PLAIN)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _separate(axes, table.supported, flip)


def _separate(axes: Axes, columns: tuple[MatrixColumn, ...], flip: bool) -> None:
    for j in range(1, len(columns)):
        if columns[j].backend != columns[j - 1].backend:
            (axes.axhline if flip else axes.axvline)(j, color=INK, linewidth=1.2)


def _look(
    table: MatrixTable, op: str | None, column: MatrixColumn
) -> tuple[str, str, str, str | None]:
    """Text, background, ink and hatch of one cell."""
    if op is None:
        total = table.totals[column]
        good = sum(r.evidence is total.best and not r.verdict.bad for r in total.records)
        count = f"{good or total.passed}/{len(total)}" if total.best else DASH
        shown = str(total.speedup) if total.speedup else count
        return shown, PAPER, INK, None
    cell = table.cells.get((op, column))
    if cell is None:
        return "", PAPER, INK, None
    if cell.verdict.bad:
        return str(cell.verdict).replace("_", " "), FAIL, PAPER, None
    if cell.speedup is None:
        text, background, hatch = RUNG.get(cell.evidence, RUNG[Evidence.VERIFIED])
        if cell.best > cell.evidence:
            text = f"{cell.rungs[cell.best]}/{len(cell)} {cell.best}"
        return text, background, INK, hatch
    return _measured(cell)


def _measured(cell: TableCell) -> tuple[str, str, str, str | None]:
    assert cell.speedup is not None
    background, dark = _colour(cell.speedup.value)
    partial = "" if cell.speedup.n == len(cell) else "*"
    return f"{cell.speedup}{partial}", background, PAPER if dark else INK, None


def _colour(speedup: float) -> tuple[str, bool]:
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    colours = LinearSegmentedColormap.from_list("diverging", list(DIVERGING))
    at = max(-1.0, min(1.0, math.log2(speedup) / LIMIT_LOG2))
    at = math.copysign(abs(at) ** 0.75, at)  # most speedups are near 1
    r, g, b, _ = colours((at + 1) / 2)
    return to_hex((r, g, b)), 0.299 * r + 0.587 * g + 0.114 * b < 0.55


def _cell(axes: Axes, x: int, y: int, text: str, back: str, ink: str, hatch: str | None) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=back, edgecolor=PAPER, linewidth=1.5))
    if hatch:
        lines = Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, fill=False, edgecolor="#c5cbd5")
        lines.set(linewidth=0, hatch=hatch)
        axes.add_patch(lines)
    bold = "bold" if back == FAIL else "normal"
    size = 8.5 if len(text) < 9 else 7.5
    axes.text(x + 0.5, y + 0.53, text, size=size, weight=bold, ha="center", va="center", color=ink)


def _legend(figure: Figure, table: MatrixTable, across: float, down: float) -> None:
    lines = (
        "none < built (real ISA) < emulated (correct in emulation) < executed (its object is"
        " correct on a model of the processor) < verified (correct on the hardware) < measured"
        " (timed there)\n"
        "a cell is the worst of its workloads and dtypes; * some of them are not measured;"
        f" colours end at {times(0.25)} and {times(4)}"
    )
    left_out = len(table.columns) - len(table.supported)
    if left_out:
        lines += f"; {left_out} unsupported pairs are not shown"
    figure.text(0.18 / across, 0.18 / down, lines, va="bottom", size=7.5, color="#5a6272")
    strip = figure.add_axes((0.18 / across, 0.62 / down, 1.8 / across, 0.1 / down))
    strip.imshow([[i / 60 for i in range(-60, 61)]], aspect="auto", cmap=_colormap())
    strip.set_axis_off()


def _colormap() -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("diverging", list(DIVERGING))
