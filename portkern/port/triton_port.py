"""The port of a library's Triton kernels: they are compiled for each target, over
configurations, and run in Triton's interpreter as the original and as the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from portkern.errors import WorkerError
from portkern.port import triton_library, triton_proof, triton_tests
from portkern.port.kernel_port import NOT_ASKED, KernelPort, PortResources, ProofLine
from portkern.port.library import Library
from portkern.port.proof import Outcome
from portkern.port.request import PortRequest
from portkern.port.triton_library import TritonOutcome, TritonResult
from portkern.port.triton_proof import Place
from portkern.port.triton_recorded import NO_TEST, Recorded
from portkern.port.triton_source import TritonKernel
from portkern.port.triton_tests import TestedLibrary
from portkern.spec.target import Target

SEVERAL = "functions of its file have its name, and a launch does not say which it is of"


def ports(
    read: Library, request: PortRequest, key: str
) -> tuple[list[KernelPort], tuple[str, ...]]:
    """The ports of all Triton kernels under one key: they are compiled together, in one process
    in the jail; and what became of the library's own tests."""
    kernels = [kernel for kernel in read.triton if not kernel.helper]
    limit_s = request.timeout_s * 4
    proofs: Mapping[tuple[Place, str], ProofLine] = {}
    results: Sequence[TritonResult] = ()
    absent, tests = "", tuple[str, ...]()
    try:
        results = triton_library.compile_all(
            read, request.targets, kernels=kernels, timeout_s=limit_s
        )
        if request.prove:
            proofs = triton_proof.prove(read, request.targets, kernels, results, timeout_s=limit_s)
        if request.prove and request.tests:
            names = [target.name for target in request.targets]
            tested = triton_tests.recorded(read.root, request.tests, names, limit_s)
            proofs, tests = _by_tests(read, kernels, tested, proofs, limit_s), tuple(tested.lines)
    except WorkerError as error:
        absent = str(error)
    outcome = Outcome.UNPROVEN if request.prove else NOT_ASKED
    unproven = ProofLine(outcome=outcome, why=absent)
    made = [
        _port(
            kernel,
            target,
            results,
            absent,
            key,
            proofs.get((_place(kernel), target.name), unproven),
        )
        for kernel in kernels
        for target in request.targets
    ]
    return made, tests


def _by_tests(
    read: Library,
    kernels: Sequence[TritonKernel],
    tested: TestedLibrary,
    own: Mapping[tuple[Place, str], ProofLine],
    timeout_s: float,
) -> dict[tuple[Place, str], ProofLine]:
    """The proofs of what tests launch, and by themselves of the other kernels. A launch does not
    say which of two functions of one name in a file it is of."""
    names = Counter((kernel.path, kernel.name) for kernel in kernels)
    recorded = Recorded(read.root, tested, timeout_s)
    proofs: dict[tuple[Place, str], ProofLine] = {}
    for kernel in kernels:
        for target in tested.by_target or {t for _, t in own}:
            by_itself = own[_place(kernel), target]
            is_one = names[kernel.path, kernel.name] == 1
            line = recorded.proof((str(kernel.path), kernel.name), target) if is_one else None
            no_test = tested.original.problem or (NO_TEST if is_one else SEVERAL)
            why = "; ".join(filter(None, [by_itself.why, no_test]))
            proofs[_place(kernel), target] = line or by_itself.model_copy(update={"why": why})
    return proofs


def _place(kernel: TritonKernel) -> Place:
    return str(kernel.path), kernel.line


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
