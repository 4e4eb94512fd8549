"""One source for CUDA and HIP: what <portkern/portable.h> promises where it is included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from portkern import guard, ops
from portkern.cli import main
from portkern.simt.execute import runtime_library
from portkern.spec import registry, target
from portkern.spec.backend import Build, Missing, Ready
from portkern.spec.candidate import Candidate

HEADER = "#include <portkern/portable.h>\n"
#: y = max(x, 0), by way of every name that the header has of warps: a lane that gets anything but
#: what its warp's width implies, adds to it.
RELU = (
    HEADER
    + """
#define BLOCK 128  // knob: 64 128 (hip: 64)

__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    __shared__ int of_warp[BLOCK / WARP_SIZE_MIN];
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    int wrong = WARP_SIZE % WARP_SIZE_MIN + WARP_SIZE_MAX % WARP_SIZE;
    wrong += warp_shuffle(lane, 3) != 3;
    wrong += warp_shuffle_xor(lane, WARP_SIZE / 2) != (lane ^ WARP_SIZE / 2);
    wrong += warp_shuffle_up(lane, 1) != max(lane - 1, 0);
    wrong += warp_shuffle_down(lane, 1) != min(lane + 1, WARP_SIZE - 1);
    const warp_mask_t upper = warp_ballot(lane >= WARP_SIZE / 2), one = 1;
    wrong += warp_count(upper) != WARP_SIZE / 2 || warp_first(upper) != WARP_SIZE / 2;
    wrong += (upper >> lane & one) != (lane >= WARP_SIZE / 2);
    wrong += !warp_any(lane == WARP_SIZE - 1) || warp_all(lane != WARP_SIZE - 1);
    if (lane == 0) of_warp[warp] = warp;
    __syncthreads();
    wrong += of_warp[warp] != warp;
    const scalar_t nan = scalar_t(__int_as_float(0x7fc00000)), one_half = scalar_t(0.5f);
    wrong += float(max_nan(one_half, nan)) == 0.5f || float(max_nan(nan, one_half)) == 0.5f;
    if (i < n) y[i] = scalar_t(float(max_nan(x[i], scalar_t(0.0f))) + float(wrong));
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    kernel<<<(unsigned)((n + THREADS - 1) / (THREADS)), THREADS, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""
)
#: What else of CUDA's names a launcher may need.
LAUNCHER = (
    HEADER
    + """
template <int A, int B>
__global__ void kernel(const scalar_t* x, scalar_t* y, int64_t n, const scalar_t* copy) {
    extern __shared__ float shared[];
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x + A] = i < n ? float(copy[i]) : 0.0f;
    if (i < n) y[i] = scalar_t(fmaxf(shared[threadIdx.x + B], 0.0f));
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    void* copy = nullptr;
    cudaError_t error = cudaMallocAsync(&copy, n * sizeof(scalar_t), stream);
    if (error != cudaSuccess) return (int)error;
    cudaMemsetAsync(copy, 0, n * sizeof(scalar_t), stream);
    cudaMemcpyAsync(copy, x, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    int device = 0, units = 0, blocks = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(kernel<1, 1>, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel<1, 1>, 256, 60000);
    if (units < 1 || blocks < 1) return (int)cudaErrorInvalidValue;
    kernel<1, 1><<<(unsigned)((n + 255) / 256), 256, 60000, stream>>>(x, y, n,
                                                                     (const scalar_t*)copy);
    cudaFreeAsync(copy, stream);
    return (int)cudaGetLastError();
}
"""
)
WHERE = [("cuda", "sm_90"), ("hip", "gfx942"), ("hip", "gfx1100"), ("hip", "sm_90")]
everywhere = pytest.mark.parametrize(("backend", "arch"), WHERE)
needs_executor = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)


class Judged(NamedTuple):
    verdict: str
    evidence: str
    detail: str


def sized(threads: str) -> str:
    return RELU.replace("THREADS", threads)


def judged(
    source: str,
    backend: str,
    arch: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[Judged]:
    """The records of ``portkern check`` in the emulator, of the one file that both compile."""
    monkeypatch.chdir(folder)
    Path("relu.cu").write_text(source, encoding="utf-8")
    argv = ["op=relu", f"backend={backend}", "source=relu.cu", f"target={arch}", "venue=emulator"]
    main.run(["check", *argv, "dtypes=bfloat16", "json=true"])
    records = json.loads(capsys.readouterr().out)["records"]
    assert records
    return [Judged(r["verdict"], r["evidence"], r["detail"]) for r in records]


@pytest.mark.sampled()
@needs_executor
@everywhere
@pytest.mark.parametrize("source", [sized("BLOCK"), LAUNCHER], ids=["warps", "launcher"])
def test_one_file_passes_in_both_backends_at_either_width(
    source: str,
    backend: str,
    arch: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = registry.load(backend).probe(target.load(arch))
    if isinstance(missing, Missing):
        pytest.skip(str(missing))
    for one in judged(source, backend, arch, tmp_path, monkeypatch, capsys):
        assert (one.verdict, one.evidence) == ("passed", "emulated"), one.detail


@pytest.mark.full
@needs_executor
@pytest.mark.parametrize(("backend", "arch"), [("cuda", "sm_90"), ("hip", "gfx942")])
def test_the_emulator_knows_the_bounds_of_a_launch(
    backend: str,
    arch: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = registry.load(backend).probe(target.load(arch))
    if isinstance(missing, Missing):
        pytest.skip(str(missing))
    first, *_ = judged(sized("BLOCK * 2"), backend, arch, tmp_path, monkeypatch, capsys)
    assert "SX403" in first.detail


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nvrtc_finds_the_header(
    dtype: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend, sm_90 = registry.load("cuda"), target.load("sm_90")
    monkeypatch.setenv("PATH", "/nonexistent")  # no g++, so that nvcc cannot be used
    monkeypatch.delenv("CUDA_HOME", raising=False)
    ready = backend.probe(sm_90)
    if isinstance(ready, Missing):
        pytest.skip(str(ready))
    assert isinstance(ready, Ready)
    assert set(ready.toolchain) == {"nvrtc"}
    relu = Candidate("relu", "cuda", "cuda", sized("BLOCK"), "relu")
    request = Build(relu, ops.load("relu").signature, dtype, sm_90, {"n": 8}, {}, runnable=False)
    [kernel] = backend.build(request, tmp_path).resources
    assert (kernel.threads, kernel.spills) == (128, 0)


@pytest.mark.parametrize("language", ["cuda", "hip"])
def test_the_guard_lets_the_header_pass(language: str) -> None:
    candidate = Candidate("relu", language, language, sized("BLOCK"), "relu")
    assert not guard.inspect(candidate, guard.GuardPolicy())
