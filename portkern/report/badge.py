"""``badge.svg``, and ``badge.json`` as shields.io reads it: green or red for a README."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

from portkern.printable import printable
from portkern.report import comment
from portkern.report.table import MatrixTable

_LABEL = "kernels"
_COLOURS = {"green": "#2da44e", "red": "#cf222e", "grey": "#6e7781"}
#: Width of a letter of 11 pixels, about, and what is left and right of a text.
_LETTER, _MARGIN = 6.5, 10


def svg(table: MatrixTable, *, title: str) -> str:
    message, colour = _message(table), _COLOURS[comment.colour(table)]
    left, right = (round(len(text) * _LETTER + 2 * _MARGIN) for text in (_LABEL, message))
    whole = left + right
    told = escape(printable(f"{_LABEL}: {message} ({title})"))
    texts = "".join(
        f'<text x="{x}" y="14" text-anchor="middle">{escape(text)}</text>'
        for x, text in ((left / 2, _LABEL), (left + right / 2, message))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img">'
        f'<title>{told}</title><rect width="{whole}" height="20" rx="3" fill="#24292f"/>'
        f'<rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g>'
        "</svg>\n"
    )


def endpoint(table: MatrixTable, *, title: str) -> str:
    said = {
        "schemaVersion": 1,
        "label": _LABEL,
        "message": _message(table),
        "color": _COLOURS[comment.colour(table)],
        "isError": comment.colour(table) == "red",
    }
    return json.dumps(said, ensure_ascii=False) + "\n"


def _message(table: MatrixTable) -> str:
    worse = len(table.changes.regressed) if table.changes else 0
    if worse:
        return f"{worse} worse"
    if table.failing:
        return f"{len(table.failing)} failing"
    if missed := comment.gaps(table):
        return f"{missed} missing"
    return f"{table.whole.passed} passed" if table.whole.passed else "nothing ran"
