"""Properties of every kernel in the catalogue, on whichever architecture it is built for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from portkern import ops
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Failure, StageLimits
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Backend, Build, Missing, Ready
from portkern.spec.candidate import Candidate, Knob
from portkern.spec.occupancy import occupancy
from portkern.spec.target import Target
from tests.tiers import EVERYTHING

#: The vendors whose registers a backend's kernels reckon with. What HIP's need on NVIDIA's, and
#: what XLA makes of Pallas', is not in our hands.
WRITTEN_FOR = {("cuda", "nvidia"), ("hip", "amd"), ("triton", "amd"), ("triton", "nvidia")}
ARCHITECTURES = [target.load(name) for name in target.names("architecture")]
SHIPPED = [
    (registry.load(name), kernel)
    for name in registry.names()
    for op in ops.ALL
    for kernel in catalogue.candidates(op, registry.load(name))
]


def test_kernels_have_knobs_which_stand_at_values_that_they_offer() -> None:
    odd = {
        (backend.name, kernel.language, kernel.op): list(kernel.knobs.values())
        for backend, kernel in SHIPPED
        if not kernel.knobs
        or any(
            knob.value not in knob.choices or not len(set(knob.choices)) == len(knob.choices) > 1
            for knob in kernel.knobs.values()
        )
    }
    assert not odd


def test_every_architecture_takes_the_settings_that_kernels_ship_with() -> None:
    refused = {
        (backend.name, kernel.language, kernel.op, where.name, knob.name): reason
        for backend, kernel in SHIPPED
        for where in filter(backend.supports, ARCHITECTURES)
        for knob in kernel.knobs.values()
        if (reason := backend.refuses(where, knob.name, knob.value))
    }
    assert not refused


@pytest.mark.sampled("backend", by="name")
@pytest.mark.parametrize(
    ("backend", "kernel"), SHIPPED, ids=[f"{b.name}-{k.language}-{k.op}" for b, k in SHIPPED]
)
def test_it_builds_within_the_limits_of_the_architecture_and_without_spills(
    backend: Backend, kernel: Candidate, tmp_path: Path
) -> None:
    requests, toolchains = [], []
    for request in asked(backend, kernel):
        match backend.probe(request.target):
            case Ready(toolchain):
                requests.append(request)
                toolchains.append(toolchain)
            case missing:
                why = missing
    if not requests:
        pytest.skip(f"{backend.name}: {why}")
    built = build.build_all(
        [build.BuildRequest(backend, request) for request in requests],
        toolchains,
        limits=StageLimits(),
        cache=ArtifactCache(tmp_path),
    )
    faults = {
        (one.request.target.name, one.request.build.dtype): found
        for one in built
        if (found := list(wrong_with(backend, one.outcome, one.request.target)))
    }
    assert not faults


def asked(backend: Backend, kernel: Candidate) -> Iterator[Build]:
    """The builds of one kernel, as for a matrix. In turns: in one dtype for one architecture, the
    next kernel in the next of both."""
    op, turn = ops.load(kernel.op), ops.ALL.index(kernel.op)
    dtypes = [d for d in op.dtypes if not isinstance(backend.accepts(kernel, d), Missing)]
    shown = op.workloads["typical"][0]
    scalars = op.signature.scalar_values(shown.scalars)
    supported = filter(backend.supports, ARCHITECTURES)
    legal = [where for where in supported if kernel.language in backend.languages_on(where)]
    for where in legal if EVERYTHING else [legal[turn % len(legal)]]:
        for dtype in dtypes if EVERYTHING else [dtypes[turn % len(dtypes)]]:
            yield Build(kernel, op.signature, dtype, where, shown.dims, scalars, runnable=False)


SHARED = [
    pytest.param(name, package, Path(path.name), id=f"{name}-{path.name}")
    for name in registry.names()
    for package in registry.load(name).shared
    for path in sorted(Path(str(files(package) / "kernels")).iterdir())
]


@pytest.mark.parametrize(("name", "package", "file"), SHARED)
def test_a_backend_has_a_shared_kernel_in_its_own_language_and_no_other_beside_it(
    name: str, package: str, file: Path
) -> None:
    backend = registry.load(name)
    language = backend.shared[package][file.suffix]
    kernels = {kernel.language: kernel for kernel in catalogue.candidates(file.stem, backend)}
    assert kernels[language].backend == name
    own = files(type(backend).__module__) / "kernels"
    suffixes = [suffix for suffix, spoken in backend.languages.items() if spoken == language]
    assert not any((own / f"{file.stem}{suffix}").is_file() for suffix in suffixes)


def test_two_backends_compile_the_same_source() -> None:
    [cuda] = catalogue.candidates("rope", registry.load("cuda"))
    [hip] = catalogue.candidates("rope", registry.load("hip"))
    assert cuda.source == hip.source
    assert (cuda.language, hip.language) == ("cuda", "hip")


def test_a_knob_of_a_shared_source_may_start_elsewhere_in_one_language(tmp_path: Path) -> None:
    """Also where the source is read from its file."""
    path = tmp_path / "sum.cu"
    path.write_text("#define A 8  // knob: 1 4 8 (hip: 4)\n#define B 2  // knob: 1 2\n")
    found = {
        name: catalogue.from_file(path, op="sum", backend=registry.load(name)).knobs
        for name in ("cuda", "hip")
    }
    assert found["cuda"] == {"A": Knob("A", 8, (1, 4, 8)), "B": Knob("B", 2, (1, 2))}
    assert found["hip"] == {"A": Knob("A", 4, (1, 4, 8)), "B": Knob("B", 2, (1, 2))}


def test_a_kernel_of_its_own_comes_before_one_that_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = registry.load("hip")
    own = catalogue.candidates("conv2d", backend)
    monkeypatch.setattr(type(backend), "shared", {"portkern.backends.cuda": {".cu": "hip"}})
    assert own and catalogue.candidates("conv2d", backend) == own


def wrong_with(backend: Backend, outcome: Artifact | Failure, where: Target) -> Iterator[str]:
    if isinstance(outcome, Failure):
        if outcome.verdict is not Verdict.UNAVAILABLE:  # OpenCL's compiler is the device's own
            yield str(outcome)
        return
    for used in outcome.resources:
        if used.spills and (backend.name, where.vendor) in WRITTEN_FOR:
            yield f"{used.kernel} spills: {used}"
        if where.is_gpu and used.registers is not None and used.threads is not None:
            fits = occupancy(
                where,
                registers=used.registers,
                agprs=used.agprs or 0,
                shared_bytes=used.shared_bytes or 0,
                threads=used.threads,
            )
            if not fits.blocks:
                yield f"{used.kernel} is never launched, for its {fits.limited_by}: {used}"
