"""The result of a port: its files, its kernels per target, and what stands against each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.port.kernel_port import NOT_ASKED, PROVEN, HazardLine, KernelPort
from portkern.port.repair.record import Repair, mended_by

#: Worst first; a kernel has the worst of its targets' outcomes.
OUTCOMES = ("wrong", "needs a human", "not proven", "needs hardware", NOT_ASKED, PROVEN)


@dataclass(frozen=True)
class FileResult:
    """``hazards`` are those that no kernel's port has; ``problem``: why nothing more is known.
    ``lines`` has the original's line for each of the port's, where these are not the same."""

    path: str
    kernels: int
    changes: int
    hazards: tuple[HazardLine, ...] = ()
    problem: str = ""
    line: int = 0
    lines: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelRow:
    """One kernel, over its targets."""

    ports: tuple[KernelPort, ...]

    @property
    def first(self) -> KernelPort:
        return self.ports[0]

    @property
    def worst(self) -> KernelPort:
        return min(self.ports, key=lambda port: OUTCOMES.index(port.proof.outcome))

    @property
    def outcome(self) -> str:
        return self.worst.proof.outcome

    @property
    def place(self) -> str:
        return f"{self.first.path}:{self.first.line}"

    @property
    def built(self) -> bool:
        return all(port.built for port in self.ports)

    @property
    def fits(self) -> bool:
        return all(port.fits for port in self.ports)

    @property
    def hazards(self) -> tuple[HazardLine, ...]:
        return tuple(dict.fromkeys(hazard for port in self.ports for hazard in port.hazards))

    @property
    def good(self) -> bool:
        """Built for each target and, where that was asked, proven."""
        errors = any(hazard.severity == "error" for hazard in self.hazards)
        asked = self.outcome != NOT_ASKED
        stands = all(port.stands for port in self.ports)
        return stands and (self.outcome == PROVEN if asked else not errors)

    @property
    def why(self) -> str:
        """The reasons why the port does not stand, by target, and that of its worst proof."""
        by_reason: dict[str, list[str]] = {}
        for port in self.ports:
            if not port.stands:
                by_reason.setdefault(port.missing, []).append(port.target)
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        proof = self.worst.proof
        return "; ".join([*reasons, *([proof.why] if proof.why else [])])


@dataclass(frozen=True)
class PortResult:
    """``problems`` are of the library as a whole; ``reused`` ports were known before. ``stopped``
    says which budget ended the ``repairs``, or which model that is ``down``. ``tests`` is what
    became of the library's own tests."""

    name: str
    root: Path
    tree: Path
    to: str
    targets: tuple[str, ...]
    files: tuple[FileResult, ...]
    ports: tuple[KernelPort, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reused: int = 0
    seconds: float = 0.0
    repairs: tuple[Repair, ...] = ()
    stopped: str = ""
    down: bool = False
    style: str = "hip"
    tests: tuple[str, ...] = ()

    def outcome(self, row: KernelRow) -> str:
        """The outcome of a kernel, with the model that mended it, if one did, and whether its
        file builds."""
        author = mended_by(self.repairs, row.first.path, row.first.kernel)
        outcome = f"{row.outcome}, repaired by {author}" if author else row.outcome
        not_whole = any(port.not_whole for port in row.ports)
        return f"{outcome} (file does not build)" if not_whole else outcome

    @property
    def rows(self) -> list[KernelRow]:
        kernels: dict[tuple[str, int, str], list[KernelPort]] = {}
        for port in self.ports:
            kernels.setdefault((port.path, port.line, port.kernel), []).append(port)
        return [KernelRow(tuple(kernels[key])) for key in sorted(kernels)]

    @property
    def unread(self) -> list[FileResult]:
        return [file for file in self.files if file.problem]

    @property
    def exit_code(self) -> int:
        """0: each kernel is built and proven; 1: one is not; 3: none could be built or run, or a
        model that is down may mend more."""
        rows = self.rows
        if rows and all(row.good for row in rows) and not self.unread:
            return 0
        lacking = rows and all(port.lacking and not _ran(port) for port in self.ports)
        return 3 if lacking or self.down else 1


def _ran(port: KernelPort) -> bool:
    return port.proof.outcome in (PROVEN, "wrong")


def summary_line(result: PortResult) -> str:
    rows = result.rows
    if not rows:
        return f"{result.name} → {result.to}: {_hazards(result)}"
    counts = Counter(row.outcome for row in rows)
    asked = counts[NOT_ASKED] < len(rows) or not rows
    parts = [f"{counts[PROVEN]} of {len(rows)} kernels proven in emulation"] if asked else []
    parts += [f"{counts[name]} {name}" for name in OUTCOMES[:4] if counts[name]]
    parts += [
        f"{sum(p.built for p in result.ports if p.target == target)} built for {target}"
        for target in result.targets
    ]
    broken = {port.path for port in result.ports if port.not_whole}
    if broken:
        parts.append(f"{len(broken)} of {len(result.files)} files built without a part of them")
    if result.unread:
        parts.append(f"{len(result.unread)} of {len(result.files)} files not read")
    return f"{result.name} → {result.to}: {', '.join(parts)}"


def _hazards(result: PortResult) -> str:
    """The summary of a library that was only looked at: its kernels, files and hazards."""
    levels = Counter(hazard.severity for file in result.files for hazard in file.hazards)
    counts = ", ".join(f"{count} {level}s" for level, count in sorted(levels.items()))
    kernels = sum(file.kernels for file in result.files)
    return f"{kernels} kernels in {len(result.files)} files, {counts or 'no hazards'}"


#: The witness on whose word a proof rests; docs/security.md says what a program that lies would
#: have to do.
WORD = (
    "Source is run in the program's own process, and a proof by that is as honest as the program; "
    "what is said of compiled code is not the program's word"
)


def document(result: PortResult) -> dict[str, object]:
    """``summary.json``, and what ``json=true`` prints."""
    rows = result.rows
    return {
        "schema": 1,
        "name": result.name,
        "root": str(result.root),
        "tree": str(result.tree),
        "to": result.to,
        "targets": list(result.targets),
        "summary": summary_line(result),
        "exit_code": result.exit_code,
        "evidence": WORD,
        "seconds": round(result.seconds, 2),
        "reused": result.reused,
        "outcomes": dict(Counter(row.outcome for row in rows)),
        "built": {t: sum(p.built for p in result.ports if p.target == t) for t in result.targets},
        "kernels": [_kernel(row) for row in rows],
        "files": [_file(file) for file in result.files],
        "problems": list(result.problems),
        "notes": list(result.notes),
        "tests": list(result.tests),
        "repairs": [repair.model_dump(exclude={"schema_"}) for repair in result.repairs],
        "stopped": result.stopped,
    }


def _kernel(row: KernelRow) -> dict[str, object]:
    proof = row.worst.proof
    return {
        "kernel": row.first.kernel,
        "path": row.first.path,
        "line": row.first.line,
        "outcome": row.outcome,
        "why": row.why,
        "good": row.good,
        "inputs": proof.inputs,
        "coverage": proof.coverage.model_dump() if proof.coverage else None,
        "algebra": proof.algebra,
        "findings": list(proof.findings),
        "original_findings": list(proof.original_findings),
        "counterexample": proof.counterexample,
        "command": proof.command,
        "hazards": [hazard.model_dump() for hazard in row.hazards],
        "targets": {port.target: _target(port) for port in row.ports},
    }


def _target(port: KernelPort) -> dict[str, object]:
    resources = port.resources.model_dump() if port.resources else None
    said = {"outcome": port.proof.outcome, "rung": str(port.rung), "missing": port.missing}
    said |= {"not_whole": port.not_whole} if port.not_whole else {}
    return {**said, "width": port.width, "resources": resources}


def _file(file: FileResult) -> dict[str, object]:
    return {
        "path": file.path,
        "kernels": file.kernels,
        "changes": file.changes,
        "hazards": [hazard.model_dump() for hazard in file.hazards],
        "problem": file.problem,
    }


def counted(hazards: Sequence[HazardLine]) -> str:
    """``PK013 ×2 PK045``."""
    counts = Counter(hazard.code for hazard in hazards)
    return " ".join(f"{code} ×{n}" if n > 1 else code for code, n in sorted(counts.items()))
