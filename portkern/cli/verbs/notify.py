"""Messages of verbs on a run, sent to an address that was named with ``notify=``."""

from __future__ import annotations

import sys
from pathlib import Path

from portkern.printable import printable
from portkern.regression.runs import RunFacts
from portkern.report import comment
from portkern.report.table import MatrixTable
from portkern.tracking import webhook

#: Lines of changes in a message.
MOST = 8


def told(url: str, table: MatrixTable, folder: Path) -> None:
    """Sends a message where the run is red or something changed: who is told each night that
    nothing did reads no message any more."""
    listed = table.changes.listed if table.changes else []
    colour = comment.colour(table)
    if not url or (colour == "green" and not listed):
        return
    job = RunFacts.read(folder).job
    lines = [f"{folder.name}: {comment.said(table)}", *map(str, listed[:MOST])]
    lines += [f"and {len(listed) - MOST} more"] if len(listed) > MOST else []
    document = {
        "run": folder.name,
        "colour": colour,
        "headline": comment.said(table),
        "changes": [str(one) for one in listed[:MOST]],
        "job": job,
    }
    text = printable("\n".join([*lines, *filter(None, [job])]))
    for note in webhook.send(url, text, document, folder.parent):
        print(f"portkern: note: {printable(note)}", file=sys.stderr)
