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
from portkern.port.proof.runs import crowding
from portkern.port.request import PortRequest
from portkern.port.triton_library import TritonOutcome, TritonResult
from portkern.port.triton_proof import Place
from portkern.port.triton_recorded import NO_TEST, Recorded
from portkern.port.triton_source import TritonKernel
from portkern.port.triton_tests import TestedLibrary
from portkern.spec.target import Target

#: A kernel by its place, on a target.
_Of = tuple[Place, str]
SEVERAL = "functions of its file have its name, and a launch does not say which it is of"


def ports(
    read: Library, request: PortRequest, key: str
) -> tuple[list[KernelPort], tuple[str, ...]]:
    """The ports of all Triton kernels under one key: they are compiled together, in one process
    in the jail; and what became of the library's own tests."""
    kernels = [kernel for kernel in read.triton if not kernel.helper]
    limit_s = request.timeout_s * 4 * crowding()
    proofs, built = dict[_Of, ProofLine](), dict[_Of, PortResources]()
    why_not = ""
    results: Sequence[TritonResult] = ()
    absent, tests = "", tuple[str, ...]()
    try:
        results = triton_library.compile_all(
            read, request.targets, kernels=kernels, timeout_s=limit_s
        )
        if request.prove and request.tests:
            names = [target.name for target in request.targets]
            tested = triton_tests.recorded(read.root, request.tests, names, limit_s)
            proofs, built = _by_tests(read, kernels, tested, limit_s)
            tests = tuple(tested.lines)
            why_not = tested.original.problem or NO_TEST
        if request.prove:
            left = [kernel for kernel in kernels if not any(p == _place(kernel) for p, _ in proofs)]
            own = triton_proof.prove(read, request.targets, left, results, timeout_s=limit_s)
            proofs |= _without_test(own, why_not, kernels) if request.tests else own
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
            built.get((_place(kernel), target.name)),
        )
        for kernel in kernels
        for target in request.targets
    ]
    return made, tests


def _by_tests(
    read: Library, kernels: Sequence[TritonKernel], tested: TestedLibrary, timeout_s: float
) -> tuple[dict[_Of, ProofLine], dict[_Of, PortResources]]:
    """The proofs of what tests launch, and of no other kernel; and what that is built to."""
    recorded = Recorded(read.root, tested, timeout_s)
    several = _several(kernels)
    proofs, built = dict[_Of, ProofLine](), dict[_Of, PortResources]()
    for kernel in kernels:
        name = str(kernel.path), kernel.name
        for target in tested.by_target if name not in several else ():
            if line := recorded.proof(name, target):
                proofs[_place(kernel), target] = line
            if used := recorded.built(name, target):
                built[_place(kernel), target] = used
    return proofs, built


def _several(kernels: Sequence[TritonKernel]) -> frozenset[tuple[str, str]]:
    """Files and names of more than one function: a launch does not say which of them it is of."""
    counts = Counter((str(kernel.path), kernel.name) for kernel in kernels)
    return frozenset(name for name, count in counts.items() if count > 1)


def _without_test(
    proofs: Mapping[_Of, ProofLine], why: str, kernels: Sequence[TritonKernel]
) -> dict[_Of, ProofLine]:
    """The proofs of kernels by themselves, each with why no test's launch shows it."""
    several = _several(kernels)
    whys = {
        _place(kernel): SEVERAL if (str(kernel.path), kernel.name) in several else why
        for kernel in kernels
    }
    return {
        (place, target): line.model_copy(
            update={"why": "; ".join(filter(None, [line.why, whys[place]]))}
        )
        for (place, target), line in proofs.items()
    }


def _place(kernel: TritonKernel) -> Place:
    return str(kernel.path), kernel.line


def _port(
    kernel: TritonKernel,
    target: Target,
    results: Sequence[TritonResult],
    absent: str,
    key: str,
    proof: ProofLine,
    launched: PortResources | None,
) -> KernelPort:
    """``launched`` is what tests launch as it was compiled: its types need no guess."""
    own = [
        result
        for result in results
        if (result.kernel, result.path, result.line, result.target)
        == (kernel.name, str(kernel.path), kernel.line, target.name)
    ]
    compiled = [result for result in own if result.outcome is TritonOutcome.COMPILED]
    others = [result for result in own if result.outcome is not TritonOutcome.COMPILED]
    if launched and len(own) == 1 and own[0].outcome is TritonOutcome.FAILED:
        others = []
    resources = _resources(compiled) or launched
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
