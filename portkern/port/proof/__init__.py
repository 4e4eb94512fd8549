"""Shows that a port computes what its original computes, and how far that was looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.hazard import Hazard
from portkern.port.proof.findings import says_nothing
from portkern.port.proof.outcome import (
    FINAL,
    NOT_LAUNCHED,
    KernelProof,
    Outcome,
    ProofLimits,
    ProofSource,
    TextCoverage,
)
from portkern.spec.target import Target
from portkern.toolchain.source_view import SourceView

if TYPE_CHECKING:
    from portkern.evaluator.jailed_compilers import JailedCompilers

__all__ = ["KernelProof", "Outcome", "ProofLimits", "ProofSource", "TextCoverage", "prove"]

#: The GPU that originals are run as.
_ORIGINAL = {"cuda": "sm_90", "hip": "gfx942"}


def prove(
    original: ProofSource,
    ported: ProofSource,
    *,
    target: Target,
    other: Target | None,
    kernels: Sequence[SourceKernel],
    hazards: Sequence[Hazard] = (),
    case: Path | None = None,
    workdir: Path,
    compilers: JailedCompilers | None = None,
    limits: ProofLimits = ProofLimits(),  # noqa: B008 - a frozen value
) -> tuple[KernelProof, ...]:
    """One proof per kernel of the ported text, in their order. ``other`` is a target of the other
    width; ``hazards`` are what the port's text still has; ``case`` is a ``kernel.yaml``. Kernels
    of files that the two are linked with are proven by the program alone. Both are built in
    ``workdir``, where proposed cases and counter-examples stay, and run in the jail, by
    ``compilers`` that see it and both sources, or else by some of its own.

    Raises ConfigError for a ``case`` that is none, BackendUnavailable without a compiler and
    WorkerError where this machine cannot contain a process.
    """
    from portkern.evaluator.jailed_compilers import JailedCompilers
    from portkern.port.proof import idle, meddling
    from portkern.port.proof.case import ProofCase, read_cases
    from portkern.port.proof.kernels import KernelProver
    from portkern.port.proof.programs import has_main, prove_program
    from portkern.port.proof.runs import Runs
    from portkern.port.proof.texts import SourceTexts
    from portkern.spec import target as targets

    cases: Mapping[str, ProofCase] = read_cases(case) if case is not None else {}
    vendor = targets.load(_ORIGINAL[original.language])
    alone_original, alone_ported = (replace(source, further=()) for source in (original, ported))
    workdir.mkdir(parents=True, exist_ok=True)
    view = original.view.joined(ported.view).joined(SourceView((workdir.absolute(),)))
    with ExitStack() as own:
        if compilers is None:
            compilers = own.enter_context(JailedCompilers(view))
        runs = own.enter_context(Runs(workdir / "build", original.path.parent, limits, compilers))
        of_program: tuple[KernelProof, ...] = ()
        left: Mapping[str, idle.IdleInstances] = {}
        if has_main(original) and has_main(ported):
            of_program = prove_program(
                original,
                ported,
                vendor=vendor,
                target=target,
                other=other,
                kernels=kernels,
                hazards=hazards,
                runs=runs,
                limits=limits,
            )
            left = idle.of_program(of_program, SourceTexts(alone_original), cases)
        only = {name: instances.chosen for name, instances in left.items() if instances.chosen}
        wanted = kernels
        if of_program:
            there = {kernel.name for kernel in SourceTexts(alone_ported).kernels}
            unsure = {proof.kernel for proof in of_program if _is_open(proof)}
            there &= unsure | cases.keys() | only.keys()
            wanted = [kernel for kernel in kernels if kernel.name in there]
        prover = KernelProver(
            alone_original,
            alone_ported,
            vendor=vendor,
            target=target,
            other=other,
            hazards=hazards,
            cases=cases,
            workdir=workdir,
            runs=runs,
            limits=limits,
            only=only,
        )
        by_case = {proof.kernel: proof for proof in prover.prove(wanted)}
        proofs = {proof.kernel: proof for proof in of_program}
        for name in by_case.keys() - only.keys():
            proofs[name] = _better(proofs.get(name), by_case[name])
        texts = SourceTexts(original), SourceTexts(ported)
        found = (idle.joined(left, proofs[kernel.name], by_case) for kernel in kernels)
        return meddling.doubted(found, *texts, programs=runs.programs)


def _is_open(proof: KernelProof) -> bool:
    """Whether another program may say more: this one did not end, or does not launch it. Where its
    original races, smaller inputs may only hide that; and where its launch fails, or the port goes
    wrong on a larger GPU, no other one shows it."""
    is_final = any(says_nothing(finding.code) for finding in proof.original_findings)
    is_final = is_final or any(reason in proof.why for reason in FINAL)
    return proof.outcome is Outcome.UNPROVEN and not is_final


def _better(of_program: KernelProof | None, of_case: KernelProof) -> KernelProof:
    """A case's proof, unless the case says no more; the program's reason stays in ``why``."""
    if of_program is None or of_program.why == NOT_LAUNCHED or of_case.outcome is Outcome.WRONG:
        return of_case
    if of_case.outcome is Outcome.UNPROVEN and of_program.coverage is not None:
        return of_program
    reasons = [of_case.why, f"in a case of its own, as {of_program.why}"]
    return replace(of_case, why="; ".join(filter(None, reasons)))
