"""Shows that a port computes what its original computes, and how far that was looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.port.hazard import Hazard
from portkern.port.proof.outcome import Coverage, KernelProof, Limits, Outcome, ProofSource
from portkern.port.syntax import Kernel
from portkern.spec.target import Target

__all__ = ["Coverage", "KernelProof", "Limits", "Outcome", "ProofSource", "prove"]

#: The GPU that originals are run as.
_ORIGINAL = "sm_90"


def prove(
    original: ProofSource,
    ported: ProofSource,
    *,
    target: Target,
    other: Target | None,
    kernels: Sequence[Kernel],
    hazards: Sequence[Hazard] = (),
    case: Path | None = None,
    workdir: Path,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> tuple[KernelProof, ...]:
    """One proof per kernel of the ported text, in their order. ``other`` is a target of the other
    width; ``hazards`` are what the port's text still has; ``case`` is a ``kernel.yaml``. Both are
    built in ``workdir``, where proposed cases and counter-examples stay, and run in the jail.

    Raises ConfigError for a ``case`` that is none, BackendUnavailable without a compiler and
    WorkerError where this machine cannot contain a process.
    """
    from portkern.port.proof.case import Case, read_cases
    from portkern.port.proof.kernels import KernelProver
    from portkern.port.proof.programs import has_main, prove_program
    from portkern.port.proof.runs import Runs
    from portkern.spec import target as targets

    cases: Mapping[str, Case] = read_cases(case) if case is not None else {}
    vendor = targets.load(_ORIGINAL)
    proofs: dict[str, KernelProof] = {}
    alone = list(kernels)
    workdir.mkdir(parents=True, exist_ok=True)
    with Runs(workdir / "build", original.path.parent, limits) as runs:
        if has_main(original) and has_main(ported):
            of_program, examination = prove_program(
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
            proofs = {proof.kernel: proof for proof in of_program}
            launched = {r.kernel for compared in examination.compared for r in compared.results}
            alone = [k for k in kernels if k.name in cases]
            if not examination.problem:
                alone += [k for k in kernels if k.name not in launched and k not in alone]
        prover = KernelProver(
            original,
            ported,
            vendor=vendor,
            target=target,
            other=other,
            hazards=hazards,
            cases=cases,
            workdir=workdir,
            runs=runs,
            limits=limits,
        )
        proofs |= {proof.kernel: proof for proof in prover.prove(alone)}
    return tuple(proofs[kernel.name] for kernel in kernels)
