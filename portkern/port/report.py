"""``port.md``, ``port.html`` and ``summary.json``: a row for each kernel, whatever became of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from portkern.port.kernel_port import HazardLine, KernelPort, Rung
from portkern.port.result import WORD, KernelRow, PortResult, counted, document, summary_line
from portkern.printable import printable
from portkern.records import atomic_write

_SPECIAL = re.compile(r"([\\`*_{}\[\]~#$|<>])")
#: Characters of a reason in a table; the whole of it stands in summary.json.
_MOST_WHY = 400
#: Findings that are shown of one kernel.
_MOST_FINDINGS = 10
RUNGS = (
    "linted < built (for the real instruction set) < emulated (ran, and did what the original does)"
)


def write(result: PortResult, folder: Path) -> None:
    atomic_write.write(folder / "port.md", markdown(result))
    atomic_write.write(folder / "port.html", html(result))
    text = json.dumps(document(result), indent=2, sort_keys=True, allow_nan=False)
    atomic_write.write(folder / "summary.json", text + "\n")


def resources(port: KernelPort) -> str:
    """``24 VGPR, 2.0 KiB LDS, 8 waves``, or why there are none."""
    used = port.resources
    if used is None:
        return "not built"
    agprs = f"+{used.agprs}" if used.agprs else ""
    amd = used.sgprs is not None
    parts = [f"{used.vgprs}{agprs} {'VGPR' if amd else 'registers'}" if used.vgprs else ""]
    parts.append(f"{used.sgprs} SGPR" if amd else "")
    parts.append(f"{_size(used.lds_bytes)} {'LDS' if amd else 'shared'}" if used.lds_bytes else "")
    parts.append(f"{used.spills} spills" if used.spills else "")
    parts.append(f"{used.scratch_bytes} B scratch" if used.scratch_bytes else "")
    parts.append(f"{used.occupancy:.0%} occupancy" if used.occupancy is not None else "")
    return ", ".join(part for part in parts if part) or "built"


def _size(count: int) -> str:
    return f"{count / 1024:.3g} KiB" if count >= 1024 else f"{count} B"


def coverage(row: KernelRow) -> str:
    known = row.worst.proof.coverage
    return str(known) if known else ""


def markdown(result: PortResult) -> str:
    sections = [
        f"# {_text(summary_line(result))}",
        _facts(result),
        _table(result),
        _not_good(result.rows),
        _listed("Repairs", _repairs(result)),
        _original(result.rows),
        _files(result),
        _listed("Hazards", _hazards(result)),
        _listed("The library's own tests", map(_text, result.tests)),
        _listed("Problems", map(_text, [*result.problems, *result.notes])),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(result: PortResult) -> str:
    changed = sum(1 for file in result.files if file.changes)
    changes = sum(file.changes for file in result.files)
    return (
        f"{len(result.files)} files read, {changed} changed in {changes} places. Evidence: "
        f"{RUNGS}. {WORD}. No time was measured."
    )


def _table(result: PortResult) -> str:
    head = ["Kernel", "Where", "Outcome", "Evidence", "Hazards", *result.targets, "Coverage", "Why"]
    lines = [_row(head), _row(["---"] * len(head))]
    for row in result.rows:
        by_target = {port.target: port for port in row.ports}
        built = [resources(by_target[t]) if t in by_target else "" for t in result.targets]
        outcome = result.outcome(row)
        cells = [row.first.kernel, row.place, outcome, str(rung(row)), counted(row.hazards)]
        lines.append(_row(map(_text, [*cells, *built, coverage(row), short(row.why)])))
    return "\n".join(lines) if result.rows else "No kernels."


def rung(row: KernelRow) -> Rung:
    """The lowest of its targets'."""
    return min((port.rung for port in row.ports), key=list(Rung).index)


def short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MOST_WHY else f"{plain[:_MOST_WHY]}…"


def _not_good(rows: Sequence[KernelRow]) -> str:
    """The section about kernels that somebody has to look at, with the command that shows each
    problem."""
    sections = []
    for row in rows:
        proof = row.worst.proof
        if row.good or not (proof.findings or proof.command or proof.counterexample):
            continue
        lines = [f"### {_text(row.first.kernel)} ({_text(row.place)}): {row.outcome}"]
        lines += [f"- {_text(finding)}" for finding in proof.findings[:_MOST_FINDINGS]]
        if len(proof.findings) > _MOST_FINDINGS:
            lines.append(f"- {len(proof.findings) - _MOST_FINDINGS} more in summary.json")
        if proof.command:
            lines += ["", f"    {printable(proof.command)}"]
        sections.append("\n".join(lines))
    return "\n\n".join(["## To look at", *sections]) if sections else ""


def _repairs(result: PortResult) -> list[str]:
    lines = [_text(short(f"{line} ({line.cost})")) for line in result.repairs]
    return [*lines, f"Ended by: {_text(result.stopped)}"] if result.stopped else lines


def _original(rows: Sequence[KernelRow]) -> str:
    findings = [finding for row in rows for port in row.ports for finding in _of_original(port)]
    return _listed("Defects of the original", map(_text, dict.fromkeys(findings)))


def _of_original(port: KernelPort) -> Iterable[str]:
    return port.proof.original_findings


def _files(result: PortResult) -> str:
    rows = [f for f in result.files if f.problem]
    lines = [f"{_text(file.path)}: {_text(short(file.problem))}" for file in rows]
    return _listed("Files that were not read, or not whole", lines)


def _hazards(result: PortResult) -> list[str]:
    """The hazards by line, each line once, with ``--explain`` for the codes."""
    placed = [(file.path, hazard) for file in result.files for hazard in file.hazards]
    placed += [(row.first.path, hazard) for row in result.rows for hazard in row.hazards]
    lines = [_text(hazard_line(path, hazard)) for path, hazard in dict.fromkeys(placed)]
    codes = sorted(Counter(hazard.code for _, hazard in placed))
    return (
        [*lines, f"portkern port explain={codes[0]} says why, and what to write"] if lines else []
    )


def hazard_line(path: str, hazard: HazardLine) -> str:
    return f"{path}:{hazard.line}: {hazard.severity}: {hazard.code} {hazard.message}"


def _listed(title: str, lines: Iterable[str]) -> str:
    items = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}", "", *items]) if items else ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text).replace("\n", " "))


def html(result: PortResult) -> str:
    environment = Environment(
        loader=PackageLoader("portkern.port"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(printable=printable, short=short)
    return environment.get_template("port.html.j2").render(
        title=printable(summary_line(result)),
        result=result,
        rows=result.rows,
        resources=resources,
        coverage=coverage,
        counted=counted,
        rung=rung,
        hazard_line=hazard_line,
        rungs=f"{RUNGS}. {WORD}",
    )
