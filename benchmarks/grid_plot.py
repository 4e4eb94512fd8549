"""Puts what benchmarks/grid.py measured on the page: draws docs/images/grid.png and the tables of
docs/operators.md.

.venv/bin/python -m benchmarks.grid_plot

A line is a column of the results; where it is at y, that share of the cells has at most the ratio
below it. Needs portkern[report].
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import _script, grid
from portkern.report import canvas
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
#: The title of each machine, its results, and the columns that have a line, with their colours: of
#: the palette by Okabe and Ito, which colour-blind readers tell apart.
MACHINES = (
    (
        "one H200",
        "grid-h200.json",
        {"best": "#000000", "cuda": "#0072b2", "triton": "#e69f00"},
    ),
    ("two cores", "grid-x86_64_avx512.json", {"c++": "#0072b2", "numba": "#e69f00"}),
)
LOW, HIGH = 0.2, 10.0  # ratios beyond are drawn at the edge


def main() -> None:
    results = [_results(name) for _, name, _ in MACHINES]
    png = canvas.painted(9.0, 3.6, dpi=160, draw=lambda figure: _draw(figure, results))
    if isinstance(png, Missing):
        raise SystemExit(f"grid_plot: {png}")
    DOCS.joinpath("images", "grid.png").write_bytes(png)
    _script.show_on_page(DOCS / "operators.md", "grid_plot", _table(results[0]))


def _results(name: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((_script.RESULTS / name).read_text("utf-8"))["cells"]
    return cells


def _table(cells: list[dict[str, Any]]) -> str:
    return f"\n{grid.table(cells)}\n\n"


def _draw(figure: Figure, results: list[list[dict[str, Any]]]) -> None:
    axes = figure.subplots(1, len(MACHINES), sharey=True)
    for ax, (title, _, colours), cells in zip(axes, MACHINES, results, strict=True):
        _lines(ax, cells, colours)
        ax.set_title(f"{len(cells)} cells on {title}", fontsize=10, color=canvas.INK)
    axes[0].set_ylabel("share of cells", fontsize=9, color=canvas.INK)
    figure.tight_layout()


def _lines(ax: Axes, cells: list[dict[str, Any]], colours: dict[str, str]) -> None:
    for who, colour in colours.items():
        known = [grid.best_of(row) if who == "best" else row["ratios"].get(who) for row in cells]
        ratios = np.sort(np.clip([ratio for ratio in known if ratio], LOW, HIGH))
        shares = np.arange(1, len(ratios) + 1) / len(ratios)
        ax.step(ratios, shares, where="post", color=colour, label=who, linewidth=1.4)
    ax.axvline(1.0, color=canvas.INK, linewidth=0.8)
    ax.axvline(0.9, color=canvas.INK, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_xlim(LOW, HIGH)
    ticks = [0.2, 0.5, 0.9, 2.0, 5.0, 10.0]
    ax.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks], fontsize=8)
    ax.minorticks_off()
    ax.set_xlabel("the better baseline's time over the kernel's", fontsize=9, color=canvas.INK)
    ax.legend(fontsize=8, frameon=False, loc="lower right")


if __name__ == "__main__":
    main()
