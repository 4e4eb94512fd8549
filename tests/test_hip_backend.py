"""The HIP backend beyond the contract: code objects for AMD, nvcc for NVIDIA."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, resources
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from portkern import ops
from portkern.errors import BuildError
from portkern.isa import code_object
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Backend, Build, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import FLOATS
from portkern.toolchain import machine_code

clang: Any = import_module("portkern.backends.hip.clang")
precompiled: Any = import_module("portkern.backends.hip.precompiled")

RELU = """\
__global__ __launch_bounds__(128) void kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    __shared__ float buffer[128];
    const int64_t i = blockIdx.x * 128ll + threadIdx.x;
    buffer[threadIdx.x] = i < n ? float(x[i]) : 0.0f;
    __syncthreads();
    const float v = __shfl_xor(buffer[127 - threadIdx.x], warpSize / 2);
    if (i < n) y[i] = scalar_t(erff(v) + (float)__popcll(__ballot(v > 0.0f)));
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {
    hipLaunchKernelGGL(kernel, dim3(1), dim3(128), 0, stream, x, y, n);
    return (int)hipGetLastError();
}
"""
BLOCKS = """\
__global__ void kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = scalar_t(sinf(sqrtf(float(x[i]))));
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {
    kernel<<<4, 128, 0, stream>>>(x, y, n);
    return (int)hipGetLastError();
}
"""
AMD = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@pytest.fixture
def backend() -> Backend:
    return registry.load("hip")


def ready(backend: Backend, arch: str) -> Backend:
    """The backend, or a skip with its own reason."""
    answer = backend.probe(target.load(arch))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    return backend


def request(source: str, arch: str, *, dtype: str = "float32", runnable: bool = False) -> Build:
    relu = ops.load("relu")
    candidate = Candidate("relu", "hip", "hip", source, "relu")
    return Build(candidate, relu.signature, dtype, target.load(arch), {"n": 8}, {}, runnable)


def build_catalogue(backend: Backend, name: str, dtype: str, arch: str, workdir: Path) -> Artifact:
    op = ops.load(name)
    [candidate] = catalogue.candidates(name, backend)
    build = Build(candidate, op.signature, dtype, target.load(arch), {}, {}, runnable=False)
    return backend.build(build, workdir)


@pytest.mark.sampled("dtype")
@pytest.mark.parametrize(("name", "dtype"), [*zip(ops.names(), cycle(FLOATS), strict=False)])
def test_every_catalogue_kernel_builds_for_cdna_without_spills(
    backend: Backend, name: str, dtype: str, tmp_path: Path
) -> None:
    artifact = build_catalogue(ready(backend, "gfx942"), name, dtype, "gfx942", tmp_path)
    assert artifact.resources
    assert {kernel.spills for kernel in artifact.resources} == {0}


@pytest.mark.sampled()
@pytest.mark.parametrize("arch", AMD)
def test_matmul_in_bfloat16_builds_for_every_amd_architecture(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    artifact = build_catalogue(ready(backend, arch), "matmul", "bfloat16", arch, tmp_path)
    assert {kernel.spills for kernel in artifact.resources} == {0}


@pytest.mark.sampled()
@pytest.mark.parametrize("name", ["softmax", "cumsum", "matmul"])
def test_the_same_sources_build_for_nvidia(backend: Backend, name: str, tmp_path: Path) -> None:
    artifact = build_catalogue(ready(backend, "sm_90"), name, "bfloat16", "sm_90", tmp_path)
    assert artifact.kind == "cubin"
    assert {kernel.spills for kernel in artifact.resources} == {0}


@pytest.mark.sampled()
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("arch", AMD)
def test_a_code_object_tells_registers_lds_and_block_size(
    backend: Backend, arch: str, dtype: str, tmp_path: Path
) -> None:
    artifact = ready(backend, arch).build(request(RELU, arch, dtype=dtype), tmp_path)
    [kernel] = artifact.resources
    assert artifact.kind == "hsaco"
    assert artifact.path.read_bytes().startswith(b"\x7fELF")
    assert (kernel.kernel, kernel.shared_bytes, kernel.threads) == ("kernel", 512, 128)
    assert kernel.registers
    assert kernel.sgprs
    assert (kernel.agprs, kernel.spills) == (0, 0)


def test_a_runnable_build_for_nvidia_is_a_library_that_exports_the_entry(
    backend: Backend, tmp_path: Path
) -> None:
    artifact = ready(backend, "sm_90").build(request(RELU, "sm_90", runnable=True), tmp_path)
    assert artifact.kind == "shared library"
    assert b"\0relu\0" in artifact.path.read_bytes()


def test_precompiled_headers_change_neither_code_nor_messages(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    right = request(RELU, "gfx942", dtype="bfloat16")
    wrong = request(RELU.replace("return", "return nothing +"), "gfx942")
    failed: list[BuildError] = []

    def run_tool(*given: Any, **how: Any) -> str:
        try:
            return str(run(*given, **how))
        except BuildError as error:
            failed.append(error)
            raise

    run = clang.run_tool
    monkeypatch.setattr(clang, "run_tool", run_tool)

    def built(name: str) -> tuple[object, str]:
        folders = [tmp_path / name, tmp_path / f"{name}-wrong"]
        for folder in folders:
            folder.mkdir()
        code = machine_code.of(ready(backend, "gfx942").build(right, folders[0]).path)
        with pytest.raises(BuildError) as error:
            backend.build(wrong, folders[1])
        return code, error.value.log.replace(str(folders[1]), "")

    without = built("without")
    assert not backend.prepare(right), "one build alone would wait longer for them"
    [folder] = backend.prepare(right)
    [headers] = folder.glob("*.pch")
    failed.clear()
    assert built("with") == without
    assert len(failed) == 2, "the wrong one, with them and without"
    headers.write_bytes(headers.read_bytes()[: 1 << 20])
    assert built("broken") == without


def test_precompiled_headers_are_read_instead_of_the_others(tmp_path: Path) -> None:
    lines: list[Sequence[str | Path]] = []

    def run(argv: Sequence[str | Path]) -> str:
        lines.append(argv)
        return ""

    argv = ("clang", "-include", "hip.h", "-c", "-emit-llvm", "-Xclang", "-emit-obj")
    headers = precompiled.Headers(argv, "", tmp_path / "hip.pch")
    headers.compile(run, ["a.hip"], [])
    headers.file.touch()
    headers.compile(run, ["a.hip"], [])
    headers.compile(run, ["a.hip"], ["-DPROJECT"])
    assert [line.count("-include") for line in lines] == [1, 0, 1]
    assert [headers.file in line for line in lines] == [False, True, False]


@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_a_source_without_the_entry_is_told_the_prototype(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=r"No function 'relu' in relu\.hip; expected: extern"):
        ready(backend, arch).build(request('// relu(x) {\nchar c[] = "relu() {";', arch), tmp_path)


@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_a_wrong_prototype_is_the_compilers_own_error(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    wrong = RELU.replace("int64_t n, hip", "int n, hip")
    with pytest.raises(BuildError) as error:
        ready(backend, arch).build(request(wrong, arch), tmp_path)
    assert "relu.hip" in error.value.log


def test_inline_assembly_of_another_machine_is_refused_at_its_line(
    backend: Backend, tmp_path: Path
) -> None:
    source = RELU.replace("    __syncthreads();", '    asm volatile("bar.sync 0;");')
    with pytest.raises(BuildError) as error:
        ready(backend, "gfx942").build(request(source, "gfx942"), tmp_path)
    assert "relu.hip:5" in error.value.log
    assert "invalid instruction" in error.value.log


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_half_precision_headers_hold_the_usual_functions(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    source = (
        """
    #include <hip/hip_fp16.h>
    #include <hip/hip_bf16.h>
    __global__ void kernel(const float* x, float* y) {
        __half h = __float2half(x[0]) * __half(2.0f) + __hfma(h, h, __float2half(1.0f));
        h += __shfl_xor(h, 1);
        __half2 pair = __hfma2(__floats2half2_rn(x[1], x[2]), __half2half2(h), make_half2(h, h));
        __hip_bfloat16 b = __float2bfloat16(x[3]) + __hip_bfloat16(__half2float(h));
        b *= __float2bfloat16(__low2float(pair));
        const float high = h > __half(0.0f) ? 1.0f : __high2float(pair);
        y[0] = __bfloat162float(b) + float(hexp(h)) + high;
    }
    """
        + RELU
    )
    artifact = ready(backend, arch).build(request(source, arch), tmp_path)
    assert len(artifact.resources) == 2


def test_a_library_without_kernels_builds_and_has_no_resources(
    backend: Backend, tmp_path: Path
) -> None:
    source = 'extern "C" int relu(const float*, float*, int64_t, hipStream_t) { return 0; }'
    assert ready(backend, "gfx942").build(request(source, "gfx942"), tmp_path).resources == ()


def test_amd_and_nvidia_targets_are_supported() -> None:
    backend = registry.load("hip")
    supported = {name for name in target.names() if backend.supports(target.load(name))}
    assert {"gfx942", "mi300x", "gfx1100", "h200"} <= supported
    assert not {"x86_64", "opencl_generic"} & supported


@pytest.mark.parametrize(
    ("name", "machine"), [("mi300x", "gfx942 (warp 64)"), ("h200", "sm_90 (warp 32)")]
)
def test_a_venue_that_is_missing_says_why(name: str, machine: str) -> None:
    venues = registry.load("hip").venues(target.load(name))
    if isinstance(venues.hardware, Missing):
        assert venues.hardware.reason
    assert isinstance(venues.emulator, Venue) and machine in venues.emulator.name


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "sm_90"])
def test_the_guides_example_compiles(backend: Backend, arch: str, tmp_path: Path) -> None:
    guide = resources.files("portkern.backends.hip").joinpath("guide.md").read_text("utf-8")
    lines = guide.partition("## An example that compiles")[2].splitlines()
    source = "\n".join(line.removeprefix("    ") for line in lines)
    assert ready(backend, arch).build(request(source, arch), tmp_path).resources


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_accumulation_registers_are_not_counted_twice(
    backend: Backend, arch: str, tmp_path: Path
) -> None:
    artifact = build_catalogue(ready(backend, arch), "attention", "bfloat16", arch, tmp_path)
    widest = max(artifact.resources, key=lambda kernel: kernel.agprs or 0)
    assert widest.agprs
    assert widest.registers == 256


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_device_library_constants_are_folded(backend: Backend, arch: str, tmp_path: Path) -> None:
    """Where the ABI version is not folded, kernels also carry the code of the older ABI, which
    reads the dispatch packet; a precision that is not folded is a load and a branch."""
    artifact = ready(backend, arch).build(request(BLOCKS, arch), tmp_path)
    [kernel] = code_object.read(artifact.path).kernels.values()
    assert not kernel.asks_for_dispatch_packet
    assert any(argument.kind == "hidden_group_size_x" for argument in kernel.arguments)
    assert b"__oclc" not in artifact.path.read_bytes()


def test_a_cache_that_cannot_be_written_to_costs_no_build() -> None:
    headers = precompiled.Headers(("clang",), "", Path("/dev/null/cache/hip.pch"))
    for _ in range(2):
        headers.prepare()
    assert not headers.file.exists()
