"""Code objects that a library carries for GPUs of AMD, and does not call: no kernel of theirs was
measured where they run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from portkern import guard
from portkern.deploy.artifacts import LeftOut, artifacts_of, as_measured, sha256
from portkern.deploy.launches import wrong
from portkern.errors import BuildError, ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest
from portkern.formats.exported import Export, KernelRecords
from portkern.isa import code_object, executor
from portkern.records.record import Evidence, Record, Verdict
from portkern.sandbox import session
from portkern.spec import launch_plan, registry
from portkern.spec import target as targets
from portkern.spec.backend import Build
from portkern.spec.target import Target
from portkern.toolchain.run_tool import cache_root

#: Backends that build for AMD's GPUs without one.
_BACKENDS = ("hip", "triton")


@dataclass(frozen=True)
class Carried:
    """``evidence`` is the least of its records for this target, ``built`` where there is none;
    ``launches`` are those of a kernel whose host code is not C's, at one size."""

    kernel: KernelRecords
    target: str
    evidence: Evidence
    data: bytes
    launches: Mapping[str, Any] | None = None

    @property
    def file(self) -> str:
        name = f"{self.kernel.candidate.op}_{self.kernel.dtype}_{sha256(self.data)[:8]}"
        return f"objects/{self.target}/{name}.hsaco"

    def document(self) -> dict[str, Any]:
        candidate = self.kernel.candidate
        return {
            "op": candidate.op,
            "dtype": self.kernel.dtype,
            "target": self.target,
            "language": candidate.language,
            "source_hash": candidate.digest,
            "evidence": str(self.evidence),
            "launches": self.launches,
            "file": self.file,
            "sha256": sha256(self.data),
        }


def carried(
    kernels: Sequence[KernelRecords], names: Sequence[str], export: Export
) -> list[Carried]:
    """The objects of all kernels for each of the targets that are named. Raises ConfigError for a
    target of which there is none: a library does not claim what it has no code for."""
    wanted = [_target(name) for name in names]
    mine = [one for one in kernels if one.candidate.backend in _BACKENDS]
    pairs = [(one, target) for target in wanted for one in mine if one.candidate.style == "dps"]
    with session.servers_of_own(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = [*pool.map(lambda pair: _of(*pair), pairs)]
    found: list[Carried] = []
    for (kernel, target), one in zip(pairs, made, strict=True):
        if isinstance(one, str):
            export.skip(f"{kernel.name} {kernel.dtype} for {target.name}", one)
        else:
            found += one
    for target in wanted:
        if not any(one.target == target.name for one in found):
            left = "; ".join(map(str, export.skipped[-3:])) or "none is in HIP or Triton"
            raise ConfigError(f"objects={target.name}: no kernel has code for it: {left}")
    return found


def _target(name: str) -> Target:
    target = targets.load(name)
    if target.vendor != "amd":
        raise ConfigError(f"Got objects={name}, expected a GPU of AMD, such as gfx942")
    return target


def _of(kernel: KernelRecords, target: Target) -> list[Carried] | str:
    """Its objects, or why it has none."""
    known = [one for one in kernel.evaluated if one.target == target.name]
    bad = [one for one in known if one.verdict.bad]
    if bad:
        return f"it is {bad[0].verdict} at {bad[0].workload.name}"
    policy = guard.GuardPolicy("allow", kernel.op.op.precision)
    reason = guard.rejection(guard.inspect(kernel.candidate, policy))
    if reason:
        return reason.partition("\n")[0]
    try:
        objects, launches = _built(kernel, target)
    except (LeftOut, BuildError, launch_plan.BadPlan) as error:
        return str(error)
    evidence = _evidence(known)
    return [Carried(kernel, target.name, evidence, one, launches) for one in objects]


def _evidence(records: Sequence[Record]) -> Evidence:
    passed = [one.evidence for one in records if one.verdict is Verdict.PASSED]
    return min(passed, default=Evidence.BUILT)


def _built(kernel: KernelRecords, target: Target) -> tuple[list[bytes], Mapping[str, Any] | None]:
    """The objects, of which each was read, and their launches, which were made on a model of the
    target. Raises LeftOut, BuildError and BadPlan."""
    op, planned = kernel.op.op, kernel.candidate.language == "triton"
    work = op.workloads["ci"][0]
    scalars = op.signature.scalar_values(work.scalars)
    made = Build(
        as_measured(kernel.candidate),
        op.signature,
        kernel.dtype,
        target,
        work.dims,
        scalars,
        runnable=False,
        ahead=planned,
    )
    request = BuildRequest(registry.load(kernel.candidate.backend), made)
    [artifact] = artifacts_of([request], ArtifactCache(cache_root() / "builds"))
    folder, paths, launches = artifact.path.parent, [artifact.path], None
    if planned:
        tensors = len(op.signature.inputs) + len(op.signature.outputs)
        plan = launch_plan.read(folder, tensors, len(op.signature.scalars))
        paths = [launch_plan.binary(folder, digest) for digest in plan.binaries]
        launches = {"dims": dict(work.dims), **plan.document}
    for path in paths:
        has = code_object.read(path).processor
        if has != target.arch:
            raise LeftOut(f"its object has code for {has}, expected {target.arch}")
    if planned and target.arch in executor.TABLES:
        if said := wrong(plan, op, work, kernel.dtype):
            raise LeftOut(f"its launches, in the executor: {said}")
    return [path.read_bytes() for path in paths], launches
