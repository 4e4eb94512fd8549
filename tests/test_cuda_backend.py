"""The CUDA backend beyond the contract: errors, resources, and NVRTC's way."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module, resources
from itertools import cycle
from pathlib import Path

import pytest

from portkern import ops
from portkern.errors import BuildError
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Backend, Build, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import FLOATS, Workload
from portkern.testing import evaluate

RELU = """\
__global__ __launch_bounds__(128) void kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    __shared__ float buffer[128];
    const int64_t i = blockIdx.x * 128ll + threadIdx.x;
    buffer[threadIdx.x] = i < n ? float(x[i]) : 0.0f;
    __syncthreads();
    if (i < n) y[i] = scalar_t(buffer[127 - threadIdx.x]);
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    kernel<<<1, 128, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""


@pytest.fixture
def backend() -> Backend:
    loaded = registry.load("cuda")
    ready = loaded.probe(target.load("sm_90"))
    if isinstance(ready, Missing):
        pytest.skip(str(ready))
    return loaded


@pytest.fixture
def needs_nvcc(backend: Backend) -> None:
    ready = backend.probe(target.load("sm_90"))
    if isinstance(ready, Ready) and "nvcc" not in ready.toolchain:
        pytest.skip(f"no nvcc with a host compiler here, only {dict(ready.toolchain)}")


def request(
    source: str, *, dtype: str = "float32", arch: str = "sm_90", runnable: bool = False
) -> Build:
    relu = ops.load("relu")
    candidate = Candidate("relu", "cuda", "cuda", source, "relu")
    return Build(candidate, relu.signature, dtype, target.load(arch), {"n": 8}, {}, runnable)


def shipped(op: str, backend: Backend, **begins: int) -> Candidate:
    """The catalogue's kernel, whose other paths begin elsewhere than at what a GPU is for."""
    [candidate] = catalogue.candidates(op, backend)
    source = candidate.source
    for knob, value in begins.items():
        source, count = re.subn(rf"(?m)^(#define {knob}) \d+", rf"\1 {value}", source)
        assert count == 1, knob
    return replace(candidate, source=source)


def without_nvcc(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")  # a wheel's nvcc is still found, its g++ is not
    monkeypatch.delenv("CUDA_HOME", raising=False)
    ready = backend.probe(target.load("sm_90"))
    if isinstance(ready, Missing):
        pytest.skip(str(ready))
    assert set(ready.toolchain) == {"nvrtc"}


#: The spilled bytes of kernels that are not mended yet, of sm_90 alone, by operator and dtype.
# Of four times eight rows: with 128 registers, which let 16 warps be resident.
FEW_ROWS = {f"few_rows_by_units<{warps}, 4, {loads}>": 12 for warps in (8, 16) for loads in (2, 4)}
SPILLS = {
    ("attention", "float32"): {"attention_kernel<256, 2>": 36, "attention_kernel<64, 4>": 32},
    ("conv2d", "bfloat16"): {"multiply<160>": 64},
    ("conv2d", "float16"): {"multiply<160>": 64},
    ("conv2d_relu_maxpool", "bfloat16"): {"multiply<160>": 64},
    ("conv2d_relu_maxpool", "float16"): {"multiply<160>": 64},
    ("add_rmsnorm", "float16"): {"add_rmsnorm_rows": 16},
    ("sum", "float16"): {"sum_columns<8>": 8},
    ("softmax", "float32"): {"softmax_wide": 16},
    ("linear", "float16"): FEW_ROWS,
    ("linear_bias", "bfloat16"): FEW_ROWS,
    ("topk", "bfloat16"): {"topk_of_few<16, 8, 8>": 24, "topk_of_few<4, 8, 8>": 12},
}


@pytest.mark.sampled("dtype")
@pytest.mark.parametrize(("name", "dtype"), [*zip(ops.names(), cycle(FLOATS), strict=False)])
def test_every_catalogue_kernel_builds_without_spills(
    backend: Backend, name: str, dtype: str, tmp_path: Path
) -> None:
    op = ops.load(name)
    [candidate] = catalogue.candidates(name, backend)
    build = Build(candidate, op.signature, dtype, target.load("sm_90"), {}, {}, runnable=False)
    artifact = backend.build(build, tmp_path)
    assert artifact.resources
    spills = {one.kernel: one.spills for one in artifact.resources if one.spills != 0}
    assert spills == SPILLS.get((name, dtype), {})
    assert candidate.knobs


@pytest.mark.drawn
def test_a_source_with_many_kernels_gets_the_same_registers_every_time(
    backend: Backend, needs_nvcc: None, tmp_path: Path
) -> None:
    """An option that compiles kernels side by side (--split-compile) did not keep this."""
    op = ops.load("bmm")
    [candidate] = catalogue.candidates("bmm", backend)
    build = Build(candidate, op.signature, "float32", target.load("sm_100"), {}, {}, runnable=False)
    seen = set()
    for turn in "abcd":
        (tmp_path / turn).mkdir()
        kernels = backend.build(build, tmp_path / turn).resources
        seen.add(tuple(sorted((k.kernel, k.registers, k.spills) for k in kernels)))
    assert len(seen) == 1


def test_a_cubin_tells_registers_shared_memory_and_block_size(
    backend: Backend, needs_nvcc: None, tmp_path: Path
) -> None:
    artifact = backend.build(request(RELU), tmp_path)
    [kernel] = artifact.resources
    assert artifact.kind == "cubin"
    assert (kernel.kernel, kernel.shared_bytes, kernel.threads) == ("kernel", 512, 128)
    assert kernel.registers


def test_a_runnable_build_is_a_library_that_exports_the_entry(
    backend: Backend, needs_nvcc: None, tmp_path: Path
) -> None:
    artifact = backend.build(request(RELU, runnable=True), tmp_path)
    assert artifact.kind == "shared library"
    assert b"\0relu\0" in artifact.path.read_bytes()
    assert Artifact.from_json(artifact.to_json()) == artifact


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_120", "h200"])
def test_other_architectures_and_products_build_too(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    assert backend.build(request(RELU, arch=arch), tmp_path).path.stat().st_size > 0


@pytest.mark.parametrize("runnable", [False, True])
def test_a_source_without_the_entry_is_told_the_prototype(
    backend: Backend, needs_nvcc: None, runnable: bool, tmp_path: Path
) -> None:
    source = "// int relu() {\nint other(int relu) { return relu; }"
    with pytest.raises(BuildError, match=r"No function 'relu' in relu\.cu; expected: extern \"C\""):
        backend.build(request(source, runnable=runnable), tmp_path)


def test_a_wrong_prototype_is_the_compilers_own_error(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        backend.build(request(RELU.replace("int64_t n, cuda", "int n, cuda")), tmp_path)
    assert "relu.cu" in error.value.log


def test_errors_name_the_authors_file_and_line(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        backend.build(request(RELU.replace("return (int)", "return oops + (int)")), tmp_path)
    assert "relu.cu(10): error" in error.value.log


def test_the_host_code_is_checked_even_for_the_device_alone(
    backend: Backend, tmp_path: Path
) -> None:
    with pytest.raises(BuildError):
        backend.build(request(RELU + "static int y = undeclared;"), tmp_path)


@pytest.mark.full
def test_nvrtc_builds_every_launched_kernel_where_nvcc_cannot(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_nvcc(monkeypatch, backend)
    [softmax] = catalogue.candidates("softmax", backend)
    signature = ops.load("softmax").signature
    sm_90 = target.load("sm_90")
    artifact = backend.build(Build(softmax, signature, "float16", sm_90, {}, {}, False), tmp_path)
    kernels = {kernel.kernel: kernel for kernel in artifact.resources}
    launched = {"short", "narrow", "row", "wide", "look", "finish"}
    assert {name.partition("<")[0] for name in kernels} == {f"softmax_{k}" for k in launched}
    assert all(k.registers and k.spills == 0 for k in kernels.values())
    assert {k.threads for k in kernels.values()} == {256, 1024}
    assert artifact.path.read_bytes().startswith(b"\x7fELF")


def test_nvrtc_shows_the_authors_lines_and_refuses_to_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_nvcc(monkeypatch, backend)
    with pytest.raises(BuildError) as error:
        backend.build(request(RELU.replace("__syncthreads", "oops")), tmp_path)
    assert "relu.cu(5)" in error.value.log
    with pytest.raises(BuildError, match="device code only"):
        backend.build(request(RELU, runnable=True), tmp_path)


def test_only_nvidia_targets_are_supported() -> None:
    backend = registry.load("cuda")
    supported = {name for name in target.names() if backend.supports(target.load(name))}
    assert {"sm_80", "sm_90", "h200", "sm_120"} <= supported
    assert not {"gfx942", "x86_64"} & supported


def test_a_venue_that_is_missing_says_why() -> None:
    venues = registry.load("cuda").venues(target.load("sm_80"))
    if isinstance(venues.hardware, Missing):
        assert "GPU" in venues.hardware.reason or "torch" in venues.hardware.reason
    assert isinstance(venues.emulator, Venue) and "sm_80 (warp 32)" in venues.emulator.name


def test_the_guides_example_compiles(backend: Backend, tmp_path: Path) -> None:
    guide = resources.files("portkern.backends.cuda").joinpath("guide.md").read_text("utf-8")
    lines = guide.partition("## An example that compiles")[2].splitlines()
    source = "\n".join(line.removeprefix("    ") for line in lines)
    assert backend.build(request(source), tmp_path).resources


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z6kernelILi4EEvPKf", "kernel<4>"),
        ("_Z11sum_columnsILi8ELin1EEvPKfPfl", "sum_columns<8, -1>"),
        ("_Z8of_parts7TensorsPK6float2l", "of_parts"),
        ("_ZN5split5halveILb1EEEvPKfl", "halve<1>"),
        ("relu_kernel", "relu_kernel"),
    ],
)
def test_kernels_are_called_as_their_source_calls_them(symbol: str, name: str) -> None:
    assert import_module("portkern.backends.cuda.ptxas").readable(symbol) == name


@pytest.mark.full
@pytest.mark.parametrize(
    ("lengths", "window", "softcap"),
    [((1, 1, 2, 60, 90, 64), 0, 0.0), ((1, 1, 1, 110, 110, 256), 30, 8.0)],
    ids=["rows of two heads", "wide heads with a window and a cap"],
)
def test_many_queries_of_a_group_go_by_warpgroups(
    backend: Backend,
    lengths: tuple[int, ...],
    window: int,
    softcap: float,
    tmp_path: Path,
) -> None:
    """The sizes have tiles enough for a GPU, which the emulator would take hours for."""
    op = ops.load("grouped_attention")
    dims = dict(zip(op.signature.axes, lengths, strict=True))
    workload = Workload("odd", dims, {"window": window, "softcap": softcap})
    candidate = shipped("grouped_attention", backend, FLASH_FROM=64, FLASH_FILLS=0)
    sm_90 = target.load("sm_90")
    results = evaluate(candidate, op, backend, sm_90, [workload], dtype="bfloat16", folder=tmp_path)
    assert isinstance(results, list), results
    assert [result.verdict for result in results] == [Verdict.PASSED], results


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "begins",
    [{"PART_FROM": 1}, {"LARGE_FROM": 0, "SPLIT_BELOW": 0}],
    ids=["in parts of its keys", "in large tiles of queries"],
)
def test_attention_of_any_size_is_right(
    backend: Backend,
    dtype: str,
    begins: dict[str, int],
    tmp_path: Path,
) -> None:
    """Both are for more work than the emulator does in a minute."""
    op = ops.load("attention")
    sizes = [(1, 1, 203, 96), (1, 2, 140, 7), (1, 1, 131, 72), (1, 1, 70, 200), (1, 3, 1, 1)]
    workloads = [
        Workload(f"odd/{number}", dict(zip(op.signature.axes, lengths, strict=True)), {})
        for number, lengths in enumerate(sizes)
    ]
    candidate = shipped("attention", backend, **begins)
    sm_90 = target.load("sm_90")
    results = evaluate(
        candidate, op, backend, sm_90, workloads, dtype=dtype, folder=tmp_path, sanitize=["races"]
    )
    assert isinstance(results, list), results
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(sizes), results
