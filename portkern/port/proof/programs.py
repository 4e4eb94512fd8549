"""Kernels that a program with main() launches: it runs beside its port."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.hazard import Hazard
from portkern.port.proof.arguments import FIRST, OWN, SMALLER
from portkern.port.proof.conclusion import conclude
from portkern.port.proof.examine import Examiner, Subject
from portkern.port.proof.outcome import KernelProof, Outcome, ProofLimits, ProofSource
from portkern.port.proof.runs import Runs
from portkern.port.proof.texts import SourceTexts, read
from portkern.spec.target import Target

_MAIN = re.compile(
    r"^[ \t]*(?:(?:extern\s+\"C\"|static|auto)\s+)*(?:int|void|signed)\s+main\s*\(", re.MULTILINE
)


def has_main(source: ProofSource) -> bool:
    return any(_MAIN.search(read(path)) for path in (source.path, *source.further))


def prove_program(
    original: ProofSource,
    ported: ProofSource,
    *,
    vendor: Target,
    target: Target,
    other: Target | None,
    kernels: Sequence[SourceKernel],
    hazards: Sequence[Hazard],
    runs: Runs,
    limits: ProofLimits,
) -> tuple[KernelProof, ...]:
    originals, ports = SourceTexts(original), SourceTexts(ported)
    subject = Subject.of(originals, ports)
    examiner = Examiner(
        runs,
        subject,
        vendor=vendor,
        target=target,
        other=other,
        mode="fast",
        limit_s=limits.run_s,
        arguments=limits.arguments,
        smaller=limits.smaller,
        ring=limits.ring,
        objects=limits.objects,
    )
    examination = examiner.examine()
    arguments = tuple(examiner.arguments or ())
    command = command_of(ported, target, arguments)

    def _of(whole: Subject, kernel: SourceKernel) -> Subject:
        """The subject with the files that the kernel stands in."""
        texts = [file.file_of(kernel.name) or file.own for file in (originals, ports)]
        return replace(whole, original_text=texts[0], ported_text=texts[1])

    whose = OWN if arguments == limits.arguments else SMALLER
    inputs = " ".join([whose, *map(shlex.quote, arguments)])
    if examiner.launches:
        inputs = f"{FIRST.format(examiner.launches)} of {inputs}"
    proofs = (
        replace(
            conclude(kernel, examination, _of(subject, kernel), hazards, inputs),
            command=command,
            idle=examination.idle.get(kernel.name),
        )
        for kernel in kernels
    )
    return tuple(
        replace(p, counterexample=ported.path) if p.outcome is Outcome.WRONG else p for p in proofs
    )


def command_of(source: ProofSource, target: Target, arguments: Sequence[str] = ()) -> str:
    """The command that runs the source again, with all that checks it."""
    argv = ["portkern", "run", str(source.path), *map(str, source.further)]
    argv += [f"target={target}", "sanitize=all"]
    argv += [f"-I{folder}" for folder in source.include]
    argv += [f"-D{define}" for define in source.defines]
    return shlex.join([*argv, *(["--", *arguments] if arguments else [])])
