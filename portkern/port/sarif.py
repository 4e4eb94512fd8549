"""Findings as SARIF 2.1.0, which code hosting shows at the lines of a change.

Names of files are relative: from the current folder where the library lies in it, else from the
library's root. The whole of a long message stands in summary.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from portkern.port.hazard import PITFALLS
from portkern.port.kernel_port import NOT_ASKED, PROVEN, HazardLine
from portkern.port.result import FileResult, KernelRow, PortResult
from portkern.records import atomic_write
from portkern.report import sarif
from portkern.spec.safe_name import real_path

#: What is said of kernels and files, beside the pitfalls: titles, and levels.
_STATES: Mapping[str, tuple[str, str]] = {
    "wrong": ("The port does something else than the original", "error"),
    "needs a human": ("The port has what no rule can translate", "error"),
    "needs hardware": ("The executor has no model of what the kernel uses", "warning"),
    "not proven": ("Nothing showed that the port does what the original does", "warning"),
    "not built": ("The port is not built for each target", "error"),
    "not read": ("A file was not read", "error"),
}


@dataclass(frozen=True)
class _Finding:
    rule: str
    level: str
    message: str
    path: str
    line: int


def write(result: PortResult, file: Path, exit_code: int) -> None:
    text = json.dumps(document(result, exit_code), indent=2, allow_nan=False)
    atomic_write.write(file, text + "\n")


def document(result: PortResult, exit_code: int) -> dict[str, object]:
    findings = list(dict.fromkeys(_at_original(_findings(result), result.files)))
    rules = sorted({finding.rule for finding in findings})
    return sarif.document(
        [_rule(rule) for rule in rules],
        [_result(f, rules.index(f.rule), _prefix(result.root)) for f in findings],
        columnKind="unicodeCodePoints",
        invocations=[{"executionSuccessful": exit_code in (0, 1), "exitCode": exit_code}],
    )


def _findings(result: PortResult) -> Iterator[_Finding]:
    for file in result.files:
        yield from (_of_hazard(file.path, hazard) for hazard in file.hazards)
        if file.problem:
            yield _Finding("not read", _level("not read"), file.problem, file.path, file.line)
    for row in result.rows:
        yield from (_of_hazard(row.first.path, hazard) for hazard in row.hazards)
        yield from _of_kernel(row)


def _at_original(findings: Iterable[_Finding], files: Iterable[FileResult]) -> Iterator[_Finding]:
    """The findings at the lines of the files as they are before the port."""
    lines = {file.path: file.lines for file in files}
    for finding in findings:
        line = lines.get(finding.path, {}).get(finding.line, finding.line)
        yield replace(finding, line=line)


def _of_hazard(path: str, hazard: HazardLine) -> _Finding:
    return _Finding(hazard.code, hazard.severity, hazard.message, path, hazard.line)


def _of_kernel(row: KernelRow) -> Iterator[_Finding]:
    """The finding that keeps a kernel from being proven and built; none for a good one."""
    if row.good:
        return
    rule = row.outcome if row.outcome not in (PROVEN, NOT_ASKED) else "not built"
    message = f"kernel {row.first.kernel}: {row.why or row.outcome}"
    yield _Finding(rule, _level(rule), message, row.first.path, row.first.line)


def _level(rule: str) -> str:
    return _STATES[rule][1] if rule in _STATES else "warning"


def _rule(rule: str) -> dict[str, object]:
    pitfall = PITFALLS.get(rule)
    if pitfall is None:
        title = _STATES[rule][0] if rule in _STATES else rule
        return {
            "id": _id(rule),
            "shortDescription": {"text": sarif.text([title])},
            "defaultConfiguration": {"level": _level(rule)},
        }
    instead = ["instead of", *_indented(pitfall.bad), "write", *_indented(pitfall.good)]
    return {
        "id": rule,
        "shortDescription": {"text": sarif.text([pitfall.title])},
        "fullDescription": {"text": sarif.text([pitfall.why])},
        "help": {"text": sarif.text([pitfall.why, "", *instead])},
        "defaultConfiguration": {"level": str(pitfall.severity)},
    }


def _indented(code: str) -> list[str]:
    return [f"    {line}" for line in code.splitlines()]


def _id(rule: str) -> str:
    return rule.replace(" ", "-")


def _result(finding: _Finding, index: int, prefix: str) -> dict[str, object]:
    return {
        "ruleId": _id(finding.rule),
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": sarif.text([finding.message])},
        "locations": [sarif.location(f"{prefix}{finding.path}", finding.line)],
    }


def _prefix(root: Path) -> str:
    here = real_path(Path.cwd())
    inside = real_path(root).relative_to(here).as_posix() if root.is_relative_to(here) else "."
    return "" if inside == "." else f"{inside}/"
