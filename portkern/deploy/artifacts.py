"""The files of a library's kernels: built by the backends' own tools, in the jail, as for an
evaluation, and looked into before they are taken."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from portkern import guard
from portkern.deploy.evidence import Cell, KernelOf, Table
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Failure, StageLimits
from portkern.formats import torch_source
from portkern.formats.exported import NoSuchForm
from portkern.sandbox import session
from portkern.spec import launch_plan, own_headers, registry
from portkern.spec import target as targets
from portkern.spec.backend import Artifact, Build, Missing, Recipe
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from portkern.spec.op import Workload
from portkern.toolchain import fat_binary
from portkern.toolchain.run_tool import cache_root


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class BuiltArtifact:
    """``data`` is a shared library, or a plan, whose ``binaries`` are files beside it, or a text
    that is compiled by the ``recipe`` where the library is imported."""

    kernel: KernelOf
    data: bytes
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    recipe: Recipe | None = None

    @property
    def sha256(self) -> str:
        return sha256(self.data)

    @property
    def file(self) -> str:
        own = self.kernel
        suffix = self.recipe.suffix if self.recipe else ".json" if own.planned else ".so"
        return f"kernels/{own.op.name}_{own.kernel.dtype}_{self.sha256[:8]}{suffix}"

    @property
    def files(self) -> dict[str, bytes]:
        return {self.file: self.data, **self.binaries}


class LeftOut(Exception):
    """Says in one line why a kernel is left out."""


def built(
    found: Table, *, lazy: bool = False, begun: Callable[[str], None] = lambda what: None
) -> list[BuiltArtifact]:
    """Builds several at once; a kernel that is left out is refused in ``found``, with its cells.
    ``lazy``: what can be is left to the machine that imports the library, as what cannot be built
    here is. ``begun`` is told what is built next."""
    cells: dict[KernelOf, list[Cell]] = defaultdict(list)
    for cell in found.cells:
        cells[cell.kernel].append(cell)
    cache = ArtifactCache(cache_root() / "builds")
    numbers = itertools.count(1)

    def make(one: KernelOf) -> BuiltArtifact | str:
        begun(f"building {one.op.name}, kernel {next(numbers)} of {len(found.kernels)}")
        return _one(one, cells[one], cache, lazy=lazy)

    with session.servers_of_own(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = list(pool.map(make, found.kernels))
    for kernel, one in zip(found.kernels, made, strict=True):
        if isinstance(one, str):
            found.refuse(kernel, one)
    return [one for one in made if isinstance(one, BuiltArtifact)]


def _one(
    kernel: KernelOf, cells: Sequence[Cell], cache: ArtifactCache, *, lazy: bool
) -> BuiltArtifact | str:
    """The kernel, or why it is left out."""
    policy = guard.GuardPolicy("allow", kernel.op.precision)
    reason = guard.rejection(guard.inspect(kernel.kernel.candidate, policy))
    if reason:  # whatever its records say: it will run where there is no jail
        return f"rejected: {reason.partition(chr(10))[0]}"
    try:
        if kernel.planned:
            return _planned(kernel, cells, cache)
        ready = registry.load(kernel.kernel.candidate.backend).probe(targets.load(kernel.target))
        return _text(kernel) if lazy or isinstance(ready, Missing) else _compiled(kernel, cache)
    except (LeftOut, NoSuchForm) as error:
        return str(error)


def _compiled(kernel: KernelOf, cache: ArtifactCache) -> BuiltArtifact:
    op = kernel.op
    workload = (*op.workloads.get("typical", ()), *op.workloads["ci"])[0]
    [made] = artifacts_of([_request(kernel, workload)], cache)
    if made.kind != "shared library":
        raise LeftOut(f"its build is of kind {made.kind!r}, no library")
    data = made.path.read_bytes()
    if targets.load(kernel.target).vendor == "nvidia":
        _expect_code(kernel, fat_binary.architectures(data))
    return BuiltArtifact(kernel, data)


def _text(kernel: KernelOf) -> BuiltArtifact:
    """Raises LeftOut and NoSuchForm."""
    own, target = kernel.kernel, targets.load(kernel.target)
    recipe = registry.load(own.candidate.backend).recipe(target)
    if recipe is None:
        raise LeftOut("it can be compiled by its backend alone, which is not here")
    text = torch_source.kernel_text(as_measured(own.candidate), kernel.op.signature, own.dtype)
    return BuiltArtifact(kernel, text.encode(), recipe=recipe)


def _planned(kernel: KernelOf, cells: Sequence[Cell], cache: ArtifactCache) -> BuiltArtifact:
    """The kernel with the launches at each of its cells that is not empty."""
    signature = kernel.op.signature
    cells = [one for one in cells if all(one.record.workload.dims.values())]
    if not cells:
        raise LeftOut("all that it was measured with is empty, which has no plan")
    works = [
        Workload(c.record.workload.name, c.record.workload.dims, c.record.workload.scalars)
        for c in cells
    ]
    made = artifacts_of([_request(kernel, work, ahead=True) for work in works], cache)
    documents: list[dict[str, object]] = []
    binaries: dict[str, bytes] = {}
    for cell, artifact in zip(cells, made, strict=True):
        tensors = len(signature.inputs) + len(signature.outputs)
        try:
            plan = launch_plan.read(artifact.path.parent, tensors, len(signature.scalars))
        except launch_plan.BadPlan as error:
            raise LeftOut(f"its plan cannot be read: {error}") from error
        documents.append({"key": cell.key, **plan.document})
        for digest, data in plan.binaries.items():
            _expect_code(kernel, {fat_binary.of_cubin(data)} - {""})
            if sha256(data) != digest:
                raise LeftOut("its plan names a binary of another digest")
            binaries[f"kernels/{digest}.cubin"] = data
    return BuiltArtifact(kernel, json.dumps({"cells": documents}).encode(), binaries)


def _expect_code(kernel: KernelOf, found: Set[str]) -> None:
    wanted = targets.load(kernel.target).arch
    if wanted not in found:
        has = ", ".join(sorted(found)) or "no GPU"
        raise LeftOut(f"its build has machine code for {has}, expected {wanted}")


def artifacts_of(requests: Sequence[BuildRequest], cache: ArtifactCache) -> list[Artifact]:
    """Raises LeftOut."""
    ready = requests[0].backend.probe(requests[0].build.target)
    if isinstance(ready, Missing):
        raise LeftOut(f"it cannot be built here: {ready}")
    chains = [ready.toolchain] * len(requests)
    made = build.build_all(requests, chains, limits=StageLimits(), cache=cache)
    failed = [one.outcome for one in made if isinstance(one.outcome, Failure)]
    if failed:
        raise LeftOut(f"{failed[0].verdict}: {failed[0].detail}")
    return [one.outcome for one in made if isinstance(one.outcome, Artifact)]


def _request(kernel: KernelOf, workload: Workload, *, ahead: bool = False) -> BuildRequest:
    signature, own = kernel.op.signature, kernel.kernel
    made = Build(
        as_measured(own.candidate),
        signature,
        own.dtype,
        targets.load(kernel.target),
        workload.dims,
        signature.scalar_values(workload.scalars),
        ahead=ahead,
    )
    return BuildRequest(registry.load(own.candidate.backend), made)


def as_measured(candidate: Candidate) -> Candidate:
    """The candidate with portkern's headers as they were, as files of its own, where they have
    changed since."""
    now = own_headers.included(replace(candidate, headers={}))
    old = {name: text for name, text in candidate.headers.items() if now.get(name) != text}
    if not old:
        return candidate
    beside = candidate.companions
    files = tuple({**candidate.headers, **beside.texts}.items())
    path = beside.path or "kernel.src"
    include = (*beside.include, ".")
    return replace(
        candidate, companions=Companions(path, files, include, beside.defines, beside.sources)
    )
