"""Kernels that a program with main() launches: it runs beside its port."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from portkern.port.hazard import Hazard
from portkern.port.proof.examine import Examination, Examiner, Subject
from portkern.port.proof.findings import Text
from portkern.port.proof.judge import judge
from portkern.port.proof.outcome import KernelProof, Limits, Outcome, ProofSource
from portkern.port.proof.runs import Runs
from portkern.port.syntax import Kernel, parse
from portkern.spec.target import Target

_MAIN = re.compile(
    r"^[ \t]*(?:(?:extern\s+\"C\"|static|auto)\s+)*(?:int|void|signed)\s+main\s*\(", re.MULTILINE
)


def has_main(source: ProofSource) -> bool:
    return any(_MAIN.search(text_of(path)) for path in (source.path, *source.further))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def read_text(path: Path) -> Text:
    text = text_of(path)
    syntax = parse(text)
    return Text(path, text, syntax.kernels, syntax.launches)


def prove_program(
    original: ProofSource,
    ported: ProofSource,
    *,
    vendor: Target,
    target: Target,
    other: Target | None,
    kernels: Sequence[Kernel],
    hazards: Sequence[Hazard],
    runs: Runs,
    limits: Limits,
) -> tuple[tuple[KernelProof, ...], Examination]:
    subject = Subject(original, ported, ported, read_text(original.path), read_text(ported.path))
    examination = Examiner(
        runs,
        subject,
        vendor=vendor,
        target=target,
        other=other,
        mode="fast",
        limit_s=limits.run_s,
    ).examine()
    command = command_of(ported, target, limits.arguments)
    inputs = " ".join(["the program's own", *map(shlex.quote, limits.arguments)])
    proofs = (
        replace(judge(kernel, examination, subject, hazards, inputs), command=command)
        for kernel in kernels
    )
    return (
        tuple(
            replace(p, counterexample=ported.path) if p.outcome is Outcome.WRONG else p
            for p in proofs
        ),
        examination,
    )


def command_of(source: ProofSource, target: Target, arguments: Sequence[str] = ()) -> str:
    """What runs it again, with all that checks it."""
    argv = ["portkern", "run", str(source.path), *map(str, source.further)]
    argv += [f"target={target}", "sanitize=all"]
    argv += [f"-I{folder}" for folder in source.include]
    argv += [f"-D{define}" for define in source.defines]
    return shlex.join([*argv, *(["--", *arguments] if arguments else [])])
