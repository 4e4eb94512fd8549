"""The port of a library's Triton kernels: they are compiled for each target, over
configurations, and run in Triton's interpreter as the original and as the port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portkern.errors import WorkerError
from portkern.port import triton_library, triton_proof
from portkern.port.kernel_port import NOT_ASKED, KernelPort, PortResources, ProofLine
from portkern.port.library import Library
from portkern.port.proof import Outcome
from portkern.port.request import PortRequest
from portkern.port.triton_library import TritonOutcome, TritonResult
from portkern.port.triton_proof import Place
from portkern.port.triton_source import TritonKernel
from portkern.spec.target import Target


def ports(read: Library, request: PortRequest, key: str) -> list[KernelPort]:
    """The ports of all Triton kernels under one key: they are compiled together, in one process
    in the jail."""
    kernels = [kernel for kernel in read.triton if not kernel.helper]
    limit_s = request.timeout_s * 4
    proofs: Mapping[tuple[Place, str], ProofLine] = {}
    results: Sequence[TritonResult] = ()
    absent = ""
    try:
        results = triton_library.compile_all(
            read, request.targets, kernels=kernels, timeout_s=limit_s
        )
        if request.prove:
            proofs = triton_proof.prove(read, request.targets, kernels, results, timeout_s=limit_s)
    except WorkerError as error:
        absent = str(error)
    outcome = Outcome.UNPROVEN if request.prove else NOT_ASKED
    unproven = ProofLine(outcome=outcome, why=absent)
    return [
        _port(
            kernel,
            target,
            results,
            absent,
            key,
            proofs.get(((str(kernel.path), kernel.line), target.name), unproven),
        )
        for kernel in kernels
        for target in request.targets
    ]


def _port(
    kernel: TritonKernel,
    target: Target,
    results: Sequence[TritonResult],
    absent: str,
    key: str,
    proof: ProofLine,
) -> KernelPort:
    own = [
        result
        for result in results
        if (result.kernel, result.path, result.line, result.target)
        == (kernel.name, str(kernel.path), kernel.line, target.name)
    ]
    compiled = [result for result in own if result.outcome is TritonOutcome.COMPILED]
    others = [result for result in own if result.outcome is not TritonOutcome.COMPILED]
    resources = _resources(compiled)
    counts = [f"{len(compiled)} of {len(own)} configurations compile"] if others else []
    why = [proof.why, *counts, *([f"{others[0].outcome}: {others[0].why}"] if others else [])]
    reason = others[0].why if others else absent or "no configuration was compiled"
    return KernelPort(
        key=key,
        path=str(kernel.path),
        line=kernel.line,
        kernel=kernel.name,
        target=target.name,
        width=target.warp or 0,
        resources=resources,
        not_built="" if resources else reason,
        lacking=bool(absent),
        proof=proof.model_copy(update={"why": "; ".join(filter(None, why))}),
    )


def _resources(compiled: Sequence[TritonResult]) -> PortResources | None:
    """The resources of the configuration with most registers; None where none are known."""
    known = [result.resources for result in compiled if result.resources]
    return PortResources.of(known) if known else None
