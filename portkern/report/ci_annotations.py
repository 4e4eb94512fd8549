"""Where a CI system shows what is wrong beside the line of the kernel that it is of: workflow
commands of GitHub Actions, ``codequality.json`` as GitLab reads it, and ``gate.sarif`` for code
scanning.

A kernel from a file is known by that file's path, from the folder that commands are given in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from portkern.printable import printable
from portkern.records.record import Record
from portkern.regression.series import Series
from portkern.report import sarif
from portkern.report.table import MatrixTable, headline

#: GitHub shows ten errors of a step.
MOST = 10
_OF_FILE = "file:"


@dataclass(frozen=True)
class Annotation:
    """``cells`` of one kernel that are bad for one reason; ``line`` counts from 1."""

    file: str
    line: int
    title: str
    message: str
    cells: int = 1

    def __str__(self) -> str:
        more = f" (and {self.cells - 1} more cells)" if self.cells > 1 else ""
        return f"{self.title}: {self.message}{more}"


def of(table: MatrixTable) -> list[Annotation]:
    """Annotations of kernels that are files: bad verdicts and regressions, each once, but for
    those in quarantine."""
    grouped: dict[tuple[str, int, str], list[Annotation]] = {}
    for annotation in _each(table):
        key = annotation.file, annotation.line, annotation.title
        grouped.setdefault(key, []).append(annotation)
    return [
        Annotation(file, line, title, alike[0].message, len(alike))
        for (file, line, title), alike in grouped.items()
    ]


def _each(table: MatrixTable) -> Iterator[Annotation]:
    regressed = table.changes.regressed if table.changes else {}
    for record in table.records:
        file = file_of(table, record)
        if not file or table.quarantine(record):
            continue
        change = regressed.get(Series.of(record))
        what = f"{record.row} {table.column(record)}"
        if record.verdict.bad:
            text = headline(record.detail)
            yield Annotation(file, line_of(record), f"{record.verdict}: {what}", text)
        elif change is not None:
            yield Annotation(file, 1, f"{change.change}: {what}", change.detail)


def file_of(table: MatrixTable, record: Record) -> str:
    """The path of the user's file that a kernel is from; '' for any other kernel."""
    if not record.author.startswith(_OF_FILE):
        return ""
    path = PurePosixPath(table.sources, record.author.removeprefix(_OF_FILE))
    return printable(str(path))


def line_of(record: Record) -> int:
    """The line of the first error that a checker, a compiler or the guard saw in the kernel's file;
    1 where none names one."""
    name = record.author.removeprefix(_OF_FILE).rpartition("/")[2]
    errors = [finding.place for finding in record.findings if finding.severity == "error"]
    places = [*errors, *record.detail.splitlines(), *record.guard]
    matches = (re.search(rf"(?:{re.escape(name)}|\bline)[: ](\d+)", place) for place in places)
    return next((int(match[1]) for match in matches if match), 1)


def github(annotations: Iterable[Annotation]) -> list[str]:
    """Commands to be written to a step's output."""
    return [
        f"::error file={_property(a.file)},line={a.line},title={_property(a.title)}::"
        + _data(str(a))
        for a in list(annotations)[:MOST]
    ]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def gitlab(table: MatrixTable, *, title: str) -> str:
    """A Code Quality report."""
    entries: Sequence[dict[str, object]] = [
        {
            "description": str(a),
            "check_name": f"portkern/{title}",
            "fingerprint": _fingerprint(a),
            "severity": "major",
            "location": {"path": a.file, "lines": {"begin": a.line}},
        }
        for a in of(table)
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def as_sarif(table: MatrixTable, *, title: str) -> str:
    """SARIF 2.1.0: a result for each annotation, whose rule is the verdict or change."""
    annotations = of(table)
    results: list[dict[str, object]] = [
        {
            "ruleId": _rule(a),
            "level": "error",
            "message": {"text": sarif.text([str(a)])},
            "partialFingerprints": {"portkern/v1": _fingerprint(a)},
            "locations": [sarif.location(a.file, max(a.line, 1))],
        }
        for a in annotations
    ]
    rules = [{"id": name} for name in dict.fromkeys(map(_rule, annotations))]
    about = {"id": f"portkern/{printable(title)}"}
    said = sarif.document(rules, results, automationDetails=about)
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def _rule(annotation: Annotation) -> str:
    return "portkern/" + annotation.title.partition(":")[0].replace(" ", "-").replace("_", "-")


def _fingerprint(annotation: Annotation) -> str:
    return hashlib.sha256(f"{annotation.file} {annotation.title}".encode()).hexdigest()
