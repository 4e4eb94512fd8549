"""What is known of a library's Triton kernels: compiled for each target, over configurations."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.errors import WorkerError
from portkern.port import triton_library
from portkern.port.kernel_port import KernelPort, ProofLine, Resources
from portkern.port.library import Library
from portkern.port.proof import Outcome
from portkern.port.request import PortRequest
from portkern.port.triton_library import TritonOutcome, TritonResult
from portkern.port.triton_source import TritonKernel
from portkern.spec.target import Target

#: Proofs run CUDA and HIP alone.
_UNPROVEN = "Triton kernels are compiled and not run"


def ports(read: Library, request: PortRequest, key: str) -> list[KernelPort]:
    """Under one key: they are compiled together, in one process in the jail."""
    kernels = [kernel for kernel in read.triton if not kernel.helper]
    try:
        results = triton_library.compile_all(
            read, request.targets, kernels=kernels, timeout_s=request.timeout_s * 4
        )
        absent = ""
    except WorkerError as error:
        results, absent = (), str(error)
    return [
        _port(kernel, target, results, absent, key)
        for kernel in kernels
        for target in request.targets
    ]


def _port(
    kernel: TritonKernel, target: Target, results: Sequence[TritonResult], absent: str, key: str
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
    counts = f"{len(compiled)} of {len(own)} configurations compile"
    why = [_UNPROVEN, counts, *([f"{others[0].outcome}: {others[0].why}"] if others else [])]
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
        proof=ProofLine(outcome=Outcome.UNPROVEN, why="; ".join(why)),
    )


def _resources(compiled: Sequence[TritonResult]) -> Resources | None:
    """Of the configuration with most registers."""
    known = [result.resources for result in compiled if result.resources]
    return Resources.of(known) if known else None
