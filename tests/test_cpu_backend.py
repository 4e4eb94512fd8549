"""The cpu backend: C++ for every CPU target, Numba for this one."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from portkern import ops
from portkern.errors import BackendUnavailable, BuildError, StorageError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Failure, StageLimits, build_all
from portkern.guard import shared
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry
from portkern.spec import target as targets
from portkern.spec.backend import Backend, Build, Call, Kernel, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.testing import evaluate
from portkern.toolchain import elf, host
from portkern.toolchain.make_once import make_once

cpu = importlib.import_module("portkern.backends.cpu")
INCLUDE = Path(str(cpu.__file__)).parent / "include"
X86 = ("x86_64", "x86_64_avx2", "x86_64_avx512")
HERE = [name for name in X86 if host.runs_here(targets.load(name))]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return registry.load("cpu")


def request(
    source: str,
    *,
    op: str = "relu",
    dtype: str = "float32",
    where: str = "x86_64",
    language: str = "c++",
) -> Build:
    signature = ops.load(op).signature
    dims = ops.load(op).workloads["ci"][0].dims
    candidate = Candidate(op, "cpu", language, source, entry=op)
    target, scalars = targets.load(where), signature.scalar_values({})
    return Build(candidate, signature, dtype, target, dims, scalars)


def shipped(op: str, language: str = "c++") -> str:
    found = catalogue.candidates(op, registry.load("cpu"))
    return next(c.source for c in found if c.language == language)


def call(kernel: Kernel, inputs: list[Any], outputs: list[Any], **scalars: float) -> Any:
    device = kernel.device
    arguments = Call(
        [device.upload(t) for t in inputs],
        [device.upload(t) for t in outputs],
        {"n": inputs[0].numel(), "rows": inputs[0].shape[0], "cols": inputs[0].shape[-1]},
        scalars,
    )
    return device.download(kernel.launch(arguments)[0])


def loaded(backend: Backend, build: Build, folder: Path) -> Kernel:
    venue = backend.venues(build.target).hardware
    if isinstance(venue, Missing):
        pytest.skip(str(venue))
    return backend.load(backend.build(build, folder), build, venue)


def test_it_claims_every_cpu_and_no_gpu(backend: Backend) -> None:
    claimed = {name for name in targets.names() if backend.supports(targets.load(name))}
    assert claimed == {name for name in targets.names() if targets.load(name).vendor == "cpu"}


def test_probe_names_the_compiler_and_its_version(backend: Backend) -> None:
    state = backend.probe(targets.load("x86_64"))
    assert isinstance(state, Ready)
    assert any(character.isdigit() for character in state.toolchain["c++"])


def test_a_machine_without_a_compiler_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("portkern.toolchain.compilers.package_dir", lambda module: None)
    cpu.compiler.cache_clear()
    try:
        state = backend.probe(targets.load("x86_64"))
    finally:
        cpu.compiler.cache_clear()
    assert isinstance(state, Missing)
    assert "g++" in state.reason and "ziglang" in state.remedy


def test_another_machines_code_has_no_venue_here(backend: Backend) -> None:
    other = "aarch64" if HERE else "x86_64"
    venues = backend.venues(targets.load(other))
    assert isinstance(venues.hardware, Missing) and "this CPU is" in venues.hardware.reason
    assert isinstance(venues.emulator, Missing)


def test_a_cpu_that_lacks_instructions_is_told_which(
    monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    target = targets.load("x86_64_avx512")
    monkeypatch.setattr(host, "cpu_flags", lambda: frozenset({"sse4_2", "avx2"}))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    hardware = backend.venues(target).hardware
    assert isinstance(hardware, Missing)
    assert "avx512f" in hardware.reason and "sse4_2" not in hardware.reason


@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_each_instruction_set_computes_softmax(
    backend: Backend, where: str, dtype: str, tmp_path: Path
) -> None:
    kernel = loaded(
        backend, request(shipped("softmax"), op="softmax", dtype=dtype, where=where), tmp_path
    )
    kind = getattr(torch, dtype)
    x = torch.randn(5, 131).to(kind)
    x[1] = -1e4
    x[2, :-1] = -torch.inf
    y = call(kernel, [x], [torch.full_like(x, torch.nan)])
    wanted = x.double().softmax(-1)
    assert torch.allclose(y.double(), wanted, atol=torch.finfo(kind).eps)


@pytest.mark.sampled("where")
@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_a_store_past_the_caches_needs_no_alignment(
    offset: int, dtype: str, where: str, backend: Backend, tmp_path: Path
) -> None:
    default = "#define STREAM_FROM 4194304"
    source = shipped("relu").replace(default, "#define STREAM_FROM 0")
    assert default in shipped("relu")
    kernel = loaded(backend, request(source, dtype=dtype, where=where), tmp_path)
    kind = getattr(torch, dtype)
    x, room = torch.randn(100_003).to(kind), torch.full((100_020,), 7.0, dtype=kind)
    assert room.data_ptr() % 64 == 0
    y = room[offset : offset + x.numel()]
    kernel.launch(Call([x], [y], {"n": x.numel()}, {}))
    assert torch.equal(y, torch.relu(x))
    assert (room[:offset] == 7.0).all() and (room[offset + x.numel() :] == 7.0).all()


def test_relu_keeps_a_nan(backend: Backend, tmp_path: Path) -> None:
    kernel = loaded(backend, request(shipped("relu")), tmp_path)
    x = torch.tensor([-1.0, torch.nan, 2.0, -torch.inf] * 9)
    y = call(kernel, [x], [torch.zeros_like(x)])
    assert torch.equal(y.isnan(), x.isnan()) and torch.equal(y[2::4], x[2::4])


def test_aarch64_code_is_an_object_file_that_defines_the_entry(
    backend: Backend, tmp_path: Path
) -> None:
    state = backend.probe(targets.load("aarch64"))
    if isinstance(state, Missing):
        pytest.skip(str(state))
    build = request(shipped("softmax"), op="softmax", dtype="float16", where="aarch64")
    artifact = backend.build(build, tmp_path)
    assert artifact.kind in ("object", "shared library")
    assert artifact.path.read_bytes()[18] == 183  # ELF's number for AArch64
    assert elf.defines(artifact.path, "softmax") and not elf.defines(artifact.path, "expf")


def test_a_wrong_prototype_is_the_compilers_error_on_the_authors_line(
    backend: Backend, tmp_path: Path
) -> None:
    source = 'extern "C" int relu(const scalar_t* x, scalar_t* y) { return 0; }'
    with pytest.raises(BuildError) as caught:
        backend.build(request("\n" + source), tmp_path)
    assert "relu.cpp:2" in caught.value.log and "conflicting" in caught.value.log


@pytest.mark.parametrize(
    "source",
    ["", "int relu(float* x, scalar_t* y, int64_t n) { return 0; }"],
    ids=["nothing", "a C++ overload"],
)
def test_a_missing_entry_is_told_the_expected_prototype(
    backend: Backend, tmp_path: Path, source: str
) -> None:
    expected = r'extern "C" int relu\(const scalar_t\* x, scalar_t\* y, int64_t n\);'
    with pytest.raises(BuildError, match=expected):
        backend.build(request(source), tmp_path)


def test_an_undefined_function_fails_at_the_link_and_not_in_the_worker(
    backend: Backend, tmp_path: Path
) -> None:
    source = "int elsewhere();\n" + shipped("relu").replace("return 0", "return elsewhere()")
    with pytest.raises(BuildError) as caught:
        backend.build(request(source), tmp_path)
    assert "elsewhere" in caught.value.log


CONVERSIONS = """
#include "harness.h"
extern "C" void half_to_float(const half_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(y + i, load(x + i));
}
extern "C" void half_to_float_scalar(const half_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}
extern "C" void float_to_half(const float* x, half_t* y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(y + i, load(x + i));
}
extern "C" void float_to_half_scalar(const float* x, half_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}
extern "C" void float_to_bf16(const float* x, bf16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(y + i, load(x + i));
}
extern "C" void float_to_bf16_scalar(const float* x, bf16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}
extern "C" void exp_of(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(y + i, exp(load(x + i)));
}
"""


@pytest.fixture(scope="module", params=HERE)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    found, target = cpu.compiler("x86_64"), targets.load(request.param)
    if isinstance(found, Missing):
        pytest.skip(str(found))
    folder = tmp_path_factory.mktemp("harness")
    (folder / "probe.cpp").write_text(CONVERSIONS)
    flags = [
        "-std=c++17",
        "-O3",
        "-fPIC",
        "-shared",
        "-fno-trapping-math",
        f"-I{cpu.HARNESS.parent}",
    ]
    subprocess.run(
        [*found.argv, *flags, found.march(target), "probe.cpp", "-o", "probe.so"],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(folder / "probe.so"))

    def convert(function: str, x: Any, kind: Any) -> Any:
        y = numpy.zeros(x.size, kind)
        getattr(library, function)(
            x.ctypes.data_as(ctypes.c_void_p),
            y.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(x.size),
        )
        return y

    return convert


def hard_floats() -> Any:
    """Every 2048th bit pattern, every half, and what lies just beside the ties between halves."""
    bits = numpy.arange(0, 2**32, 2048, dtype=numpy.uint64).astype(numpy.uint32)
    halves = numpy.arange(65536, dtype=numpy.uint16).view(numpy.float16).astype(numpy.float32)
    exact = halves.view(numpy.uint32)
    near = [exact, exact + 0xFFF, exact + 0x1000, exact + 0x1001, bits, bits + 1]
    return numpy.concatenate(near).view(numpy.float32)


@pytest.mark.parametrize("suffix", ["", "_scalar"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy on overflow to infinity
def test_half_conversions_are_ieees(harness: Any, suffix: str) -> None:
    halves = numpy.arange(65536, dtype=numpy.uint16)
    wanted = halves.view(numpy.float16).astype(numpy.float32)
    got = harness(f"half_to_float{suffix}", halves, numpy.float32)
    assert numpy.array_equal(got, wanted, equal_nan=True)
    floats = hard_floats()
    got = harness(f"float_to_half{suffix}", floats, numpy.uint16).view(numpy.float16)
    assert numpy.array_equal(got, floats.astype(numpy.float16), equal_nan=True)


@pytest.mark.parametrize("suffix", ["", "_scalar"])
def test_bfloat16_conversions_are_torchs(harness: Any, suffix: str) -> None:
    floats = hard_floats()
    wanted = torch.from_numpy(floats.copy()).bfloat16()
    bits = harness(f"float_to_bf16{suffix}", floats, numpy.int16)
    got = torch.from_numpy(bits).view(torch.bfloat16)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got[~got.isnan()], wanted[~wanted.isnan()])


def test_the_vector_exponential_is_as_exact_as_float32(harness: Any) -> None:
    x = numpy.linspace(-87.0, 88.7, 1 << 16, dtype=numpy.float32)
    got = harness("exp_of", x, numpy.float32).astype(numpy.float64)
    assert numpy.max(numpy.abs(got / numpy.exp(x.astype(numpy.float64)) - 1)) < 1.2e-7
    ends = numpy.array([-numpy.inf, -1e4, 0, 1e4, numpy.inf, numpy.nan] + [0] * 10, numpy.float32)
    got = harness("exp_of", ends, numpy.float32)
    assert numpy.array_equal(got[:6], [0, 0, 1, numpy.inf, numpy.inf, numpy.nan], equal_nan=True)


def test_numba_says_that_it_has_no_halves(backend: Backend) -> None:
    candidate = request(shipped("relu", "numba"), language="numba").candidate
    assert backend.accepts(candidate, "float32") is True
    refused = backend.accepts(candidate, "bfloat16")
    assert isinstance(refused, Missing) and "bfloat16" in refused.reason


NUMBA_CELL = """
import sys, time, torch
from pathlib import Path
from portkern.spec import registry
from portkern.spec import target as targets
from portkern.spec.backend import Artifact, Build, Call
from portkern.spec.candidate import Candidate
from portkern import ops
backend, where, folder, todo = registry.load("cpu"), targets.load(sys.argv[1]), *sys.argv[2:]
source = Path(folder, "source.txt").read_text()
op = ops.load("rmsnorm")
candidate = Candidate("rmsnorm", "cpu", "numba", source, entry="rmsnorm")
build = Build(candidate, op.signature, "float32", where, {"rows": 3, "cols": 37}, {"eps": 1e-6})
if todo == "build":
    print(backend.build(build, Path(folder)).path)
else:
    import numba
    artifact, venue = Artifact(Path(folder, "rmsnorm.py"), "numba"), backend.venues(where).hardware
    kernel = backend.load(artifact, build, venue)
    x, w, y = torch.randn(3, 37), torch.randn(37), torch.empty(3, 37)
    start = time.process_time()
    kernel.launch(Call([x, w], [y], build.dims, build.scalars))
    seconds = time.process_time() - start
    error = (y - torch.nn.functional.rms_norm(x, (37,), w, 1e-6)).abs().max().item()
    print(numba.core.config.CPU_NAME, error, seconds)
"""


def numba_cell(where: str, folder: Path, todo: str) -> str:
    argv = [sys.executable, "-c", NUMBA_CELL, where, str(folder), todo]
    backend = registry.load("cpu")
    environment = {**os.environ, **backend.environment(targets.load(where))}
    return subprocess.run(
        argv, check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


@pytest.mark.full
def test_numba_compiles_for_the_target_what_is_loaded_and_keeps_no_code_beside_it(
    backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    where = HERE[-1]
    (tmp_path / "source.txt").write_text(shipped("rmsnorm", "numba"))
    numba_cell(where, tmp_path, "build")
    assert not list(tmp_path.rglob("*.nb[ic]"))
    name, error, seconds = numba_cell(where, tmp_path, "run").split()
    assert name == targets.load(where).march
    assert float(error) < 1e-5
    assert float(seconds) < 0.5  # of the first call: it was compiled when it was loaded


CHANGED_FUNCTION = """
import sys, torch
from pathlib import Path
from portkern import ops
from portkern.backends.cpu import include
from portkern.spec import registry
from portkern.spec import target as targets
from portkern.spec.backend import Artifact, Build, Call
from portkern.spec.candidate import Candidate
where, folder = targets.load(sys.argv[1]), Path(sys.argv[2])
include.__path__[:] = [str(folder / "include")]
source = '''
import numba
from portkern.backends.cpu.include.rows import copy
@numba.njit
def relu(x, y):
    copy(x, y)
'''
backend, candidate = registry.load("cpu"), Candidate("relu", "cpu", "numba", source, entry="relu")
build = Build(candidate, ops.load("relu").signature, "float32", where, {"n": 3}, {})
artifact = Artifact(folder / "relu.py", "numba")
if sys.argv[3] == "build":
    artifact = backend.build(build, folder)
kernel = backend.load(artifact, build, backend.venues(where).hardware)
y = torch.empty(3)
kernel.launch(Call([torch.tensor([1.0, 2.0, 3.0])], [y], {"n": 3}, {}))
print(y.tolist())
"""


@pytest.mark.full
@pytest.mark.parametrize("again", ["build", "load"])
def test_a_kernel_is_compiled_anew_when_a_function_that_it_shares_has_changed(
    again: str, backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    rows = tmp_path / "include" / "rows.py"
    shutil.copytree(INCLUDE, rows.parent)
    environment = {**os.environ, **backend.environment(targets.load(HERE[-1]))}

    def made(todo: str) -> str:
        argv = [sys.executable, "-c", CHANGED_FUNCTION, HERE[-1], str(tmp_path), todo]
        return subprocess.run(
            argv, check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    assert made("build") == made("load") == "[1.0, 2.0, 3.0]"
    changed = rows.read_text().replace("to[j] = x[j]", "to[j] = x[j] * 2")
    assert changed != rows.read_text()
    rows.write_text(changed)
    assert made(again) == "[2.0, 4.0, 6.0]"


def test_what_numba_kernels_may_share_is_in_the_guide_and_nothing_else() -> None:
    guide = (INCLUDE.parent / "guide.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (`\w+\(.*)", guide, re.MULTILINE))
    made = {"sums.total", "threads.share", "threads.work", "product.multiply", "sums.term"}
    told = {f"{module}.{name}" for module in rows for name in re.findall(r"`(\w+)\(", rows[module])}
    assert told - made == {".".join(n.split(".")[-2:]) for n in shared.functions("numba")}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def another(x, y):\n    pass\n", r"expected def relu\(x, y\)"),
        ("def relu(x, y:\n", "cannot be imported"),
        ("import no_such_module\n", "no_such_module"),
        ("import numba\n\n@numba.njit\ndef relu(x, y):\n    y[0] = x.nothing()\n", "rejected"),
    ],
)
def test_numba_sources_that_cannot_work_fail_to_build(
    backend: Backend, tmp_path: Path, source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("numba").core.config
    target = targets.load(HERE[0])
    monkeypatch.setattr(config, "CPU_NAME", target.march)
    asked = request(source, language="numba", where=target.name)
    with pytest.raises(BuildError, match=message):
        backend.build(replace(asked, runnable=False), tmp_path)


def test_numba_compiles_what_is_to_run_once_and_where_it_is_loaded(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("numba").core.config
    target = targets.load(HERE[0])
    monkeypatch.setattr(config, "CPU_NAME", target.march)
    source = "import numba\n\n@numba.njit\ndef relu(x, y):\n    y[0] = x.nothing()\n"
    asked = request(source, language="numba", where=target.name)
    artifact, venue = backend.build(asked, tmp_path), backend.venues(target).hardware
    assert isinstance(venue, Venue)
    with pytest.raises(BuildError, match="rejected"):
        backend.load(artifact, asked, venue)


@pytest.mark.full
def test_a_kernel_that_its_compiler_rejects_where_it_is_loaded_is_a_failed_build(
    backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    op, where = ops.load("relu"), targets.load(HERE[0])
    source = "import numba\n\n@numba.njit\ndef relu(x, y):\n    y[0] = x.nothing()\n"
    candidate = Candidate("relu", "cpu", "numba", source, entry="relu")
    workloads = list(op.workloads["ci"])
    results = evaluate(candidate, op, backend, where, workloads, folder=tmp_path)
    assert isinstance(results, list)
    assert {result.verdict for result in results} == {Verdict.BUILD_FAILED}
    assert all("nothing" in result.detail for result in results)


def test_numba_imported_for_another_cpu_is_refused(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("numba").core.config
    monkeypatch.setattr(config, "CPU_NAME", None)
    with pytest.raises(BackendUnavailable, match="NUMBA_CPU_NAME=x86-64-v2"):
        backend.build(request(shipped("relu", "numba"), language="numba"), tmp_path)


def test_the_venue_is_this_cpu_with_the_targets_code_and_passive_threads(backend: Backend) -> None:
    venue = backend.venues(targets.load(HERE[0])).hardware
    assert isinstance(venue, Venue)
    assert venue.environment["OMP_WAIT_POLICY"] == "passive"
    assert venue.environment["NUMBA_CPU_NAME"] == targets.load(HERE[0]).march
    assert venue.device == "cpu"


def compiled(backend: Backend, asked: Build, folder: Path) -> bytes:
    folder.mkdir()
    backend.build(asked, folder)
    return (folder / f"{asked.candidate.entry}.unit.o").read_bytes()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("only g++ is given a precompiled header")
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.full
def test_a_kernel_is_the_same_with_the_header_precompiled_damaged_or_absent(
    backend: Backend, empty_cache: Path, tmp_path: Path
) -> None:
    asked = request(shipped("softmax"), op="softmax", where=HERE[0])
    without = compiled(backend, asked, tmp_path / "without")
    (folder,) = backend.prepare(asked)
    header = folder / "kernel.h.gch"
    used = header.stat().st_ino, header.stat().st_mtime_ns
    assert compiled(backend, asked, tmp_path / "with") == without
    backend.prepare(asked)
    assert (header.stat().st_ino, header.stat().st_mtime_ns) == used, "it was made twice"
    header.write_bytes(b"damaged")
    assert compiled(backend, asked, tmp_path / "damaged") == without


def test_a_precompiled_header_is_made_anew_for_another_compiler_target_or_header(
    empty_cache: Path, tmp_path: Path
) -> None:
    found = cpu.compiler("x86_64" if host.runs_here(targets.load("x86_64")) else "aarch64")
    precompiled = cpu.precompiled
    header = tmp_path / "small.h"
    header.write_text("#pragma once\nstatic inline int one() { return 1; }\n")
    wrapper = tmp_path / "g++"
    wrapper.write_text(f'#!/bin/sh\nexec {found.argv[0]} "$@"\n')
    wrapper.chmod(0o755)
    folders = [*precompiled.prepare(found, header, ["-O1"])]
    folders += precompiled.prepare(found, header, ["-O2"])
    folders += precompiled.prepare(dataclasses.replace(found, argv=(str(wrapper),)), header, [])
    header.write_text(header.read_text() + "static inline int two() { return 2; }\n")
    folders += precompiled.prepare(found, header, ["-O1"])
    assert len(set(folders)) == len(folders) == 4
    assert precompiled.include(found, header, ["-O3"]) == [], "for these flags there is none"


def test_a_header_that_cannot_be_precompiled_keeps_no_kernel_from_being_built(
    backend: Backend, empty_cache: Path, tmp_path: Path
) -> None:
    empty_cache.write_text("a file where the cache's folder would be")
    asked = request(shipped("relu"), where=HERE[0])
    assert backend.prepare(asked) == ()
    assert compiled(backend, asked, tmp_path / "built")


def test_a_file_that_many_need_at_once_is_made_by_one(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(to: Path) -> None:
        made.append(to)
        time.sleep(0.05)
        to.write_text("whole")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: make_once(tmp_path / "all" / "file", make), range(4)))
    assert len(made) == 1
    assert (tmp_path / "all" / "file").read_text() == "whole"

    def fail(to: Path) -> None:
        to.write_text("half")
        raise BuildError("it ended early")

    with pytest.raises(BuildError):
        make_once(tmp_path / "other" / "file", fail)
    assert [file.name for file in (tmp_path / "other").iterdir()] == [".lock"]


def test_a_shared_file_is_the_makers_own_whatever_the_mask(tmp_path: Path) -> None:
    path, before = tmp_path / "libportkern_isa.so", os.umask(0)
    try:
        make_once(path, lambda to: to.write_text("code"))
    finally:
        os.umask(before)
    make_once(path, lambda to: pytest.fail("it is there"))
    assert not path.stat().st_mode & 0o022


def test_a_shared_file_is_read_by_workers_whatever_the_mask(tmp_path: Path) -> None:
    path, before = tmp_path / "all" / "file", os.umask(0o077)
    try:
        make_once(path, lambda to: to.write_text("code"))
        assert path.stat().st_mode & path.parent.stat().st_mode & 0o044 == 0o044
        path.chmod(0o600)  # as earlier versions left it
        make_once(path, lambda to: pytest.fail("it is there"))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o044 == 0o044


def test_a_shared_file_that_another_user_has_made_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "libportkern_isa.so"
    path.write_text("code")
    make_once(path, lambda to: pytest.fail("it is there"))
    path.chmod(0o666)
    with pytest.raises(StorageError, match="a folder of your own"):
        make_once(path, lambda to: None)
    path.chmod(0o644)
    if os.getuid() == 0:
        os.chown(path, 1000, 1000)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StorageError, match="another user"):
        make_once(path, lambda to: None)


@pytest.mark.parametrize("linked", [False, True])
def test_a_worker_reads_what_was_precompiled_outside_of_its_jail(
    linked: bool, backend: Backend, empty_cache: Path, tmp_path: Path
) -> None:
    if linked:
        (tmp_path / "elsewhere").mkdir()
        empty_cache.symlink_to(tmp_path / "elsewhere")
    asked = request(
        f"#ifndef FROM_THE_CACHE\n#error it was not read\n#endif\n{shipped('relu')}", where=HERE[0]
    )
    found = cpu.compiler(cpu.machine(asked.target))
    made = cpu.precompiled._made(found, cpu.HARNESS, cpu._flags(found, asked.target))
    made.parent.mkdir(parents=True)
    made.with_suffix("").write_text('#include "harness.h"\n#define FROM_THE_CACHE 1\n')
    made.write_text("damaged, so that g++ reads the text")
    assert backend.prepare(asked) == (made.parent,)
    cache = ArtifactCache(tmp_path / "builds")
    [built] = build_all([BuildRequest(backend, asked)], [{}], limits=StageLimits(), cache=cache)
    assert not isinstance(built.outcome, Failure), built.outcome
