"""A HIP file becomes a real object for each AMD target, or a reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.errors import ConfigError
from portkern.port.device_build import DeviceBuilt, NotBuilt, build
from portkern.spec import registry, target
from portkern.spec.backend import Missing

AMD = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
PROGRAM = """\
#include <chrono>
#include <iostream>
#include <random>
#include <thread>
#include <vector>
#include <omp.h>
#include <hip/hip_runtime.h>

template <typename T, int N>
__global__ void __launch_bounds__(256) scale(T* x, int n) {
    __shared__ T tile[N];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : T(0);
    __syncthreads();
    if (i < n) x[i] = tile[N - 1 - threadIdx.x] + __shfl_xor(tile[threadIdx.x], 1);
    assert(n > 0);
}
template <typename T> __global__ void never_launched(T* x) { x[0] = 0; }

int main() {
    float* x = nullptr;
    hipMalloc(&x, 4096);
    std::vector<float> host(1024);
    std::mt19937 generator(1);
    auto begin = std::chrono::steady_clock::now();
    hipMemcpy(x, host.data(), 4096, hipMemcpyHostToDevice);
    scale<float, 256><<<dim3(4), dim3(256)>>>(x, 1024);
    std::cout << hipGetErrorString(hipGetLastError()) << omp_get_wtime() << std::endl;
}
"""


@pytest.fixture(autouse=True)
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler, and a cache of the test's own."""
    answer = registry.load("hip").probe(target.load("gfx942"))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))


def made(
    tmp_path: Path, text: str, arch: str = "gfx942", **options: object
) -> DeviceBuilt | NotBuilt:
    file = tmp_path / "source.hip"
    file.write_text(text)
    include = (tmp_path,) if options.pop("with_folder", False) else ()
    defines = tuple(str(text) for text in (options.pop("define", ""),) if text)
    assert not options
    workdir = tmp_path / "work"
    return build(file, target.load(arch), include=include, defines=defines, workdir=workdir)


def built(tmp_path: Path, text: str, arch: str = "gfx942", **options: object) -> DeviceBuilt:
    answer = made(tmp_path, text, arch, **options)
    assert isinstance(answer, DeviceBuilt), answer
    return answer


def refused(tmp_path: Path, text: str, arch: str = "gfx942") -> NotBuilt:
    answer = made(tmp_path, text, arch)
    assert isinstance(answer, NotBuilt), answer
    return answer


@pytest.mark.sampled()
@pytest.mark.parametrize("arch", AMD)
def test_a_program_with_host_code_builds_for_every_target(tmp_path: Path, arch: str) -> None:
    (kernel,) = built(tmp_path, PROGRAM, arch).kernels
    facts = target.load(arch)
    assert kernel.kernel == "scale"
    assert (kernel.lds_bytes, kernel.threads, kernel.wave) == (1024, 256, facts.warp)
    assert 0 < kernel.vgprs < 128
    assert kernel.occupancy.waves > 0
    assert kernel.exceeded == ()


def test_the_object_is_an_amd_code_object(tmp_path: Path) -> None:
    data = built(tmp_path, PROGRAM).object.read_bytes()
    assert data[:4] == b"\x7fELF"
    assert int.from_bytes(data[18:20], "little") == 224  # EM_AMDGPU


def test_an_error_has_the_compilers_words_and_the_files_line(tmp_path: Path) -> None:
    no = refused(
        tmp_path, "#include <hip/hip_runtime.h>\n\n__global__ void k(int* x) { x[0] = y; }\n"
    )
    assert (no.cause, no.line) == ("code", 3)
    assert "undeclared identifier 'y'" in no.reason


@pytest.mark.parametrize(
    ("header", "cause", "words"),
    [
        ("hipcub/hipcub.hpp", "machine", "install ROCm"),
        ("hiprand/hiprand_kernel.h", "machine", "hipRAND"),
        ("torch/extension.h", "machine", "include="),
        ("own_thing.h", "machine", "include="),
        ("cuda_runtime.h", "code", "CUDA's"),
        ("cutlass/cutlass.h", "code", "CUDA's"),
    ],
)
def test_a_header_that_is_absent_is_told_from_wrong_code(
    tmp_path: Path, header: str, cause: str, words: str
) -> None:
    no = refused(tmp_path, f"#include <hip/hip_runtime.h>\n#include <{header}>\n")
    assert (no.cause, no.header, no.line) == (cause, header, 2)
    assert words in no.reason


def test_device_code_of_another_file_is_a_cause_of_its_own(tmp_path: Path) -> None:
    no = refused(
        tmp_path,
        "#include <hip/hip_runtime.h>\n__device__ float f(float);\n"
        "__global__ void k(float* x) { x[0] = f(x[1]); }\n",
    )
    assert no.cause == "link"
    assert "f(float)" in no.reason
    assert "-fgpu-rdc" in no.reason


def test_spills_and_scratch_are_warnings(tmp_path: Path) -> None:
    text = """#include <hip/hip_runtime.h>
__global__ void k(const float* x, float* y, int n) {
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = x[i];
    y[threadIdx.x] = values[n];
}
"""
    (kernel,) = built(tmp_path, text).kernels
    assert kernel.scratch_bytes or kernel.vgpr_spills
    assert kernel.warnings
    assert not kernel.exceeded


def test_a_limit_that_no_launch_can_keep_is_named(tmp_path: Path) -> None:
    text = """#include <hip/hip_runtime.h>
__global__ void k(float* x) {
    __shared__ float tile[20000];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x * 7 % 20000];
}
"""
    answer = made(tmp_path, text)
    if isinstance(answer, NotBuilt):
        assert "local memory" in answer.reason or "local memory" in answer.log
    else:
        assert "80000 bytes of LDS" in answer.kernels[0].exceeded[0]


@pytest.mark.full
def test_an_object_is_kept_until_what_it_was_made_from_changes(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text("#define SIZE 4\n")
    text = (
        '#include <hip/hip_runtime.h>\n#include "sizes.h"\n'
        "__global__ void k(float* x) { x[SIZE] = 1; }\n"
    )
    assert [built(tmp_path, text).reused for _ in range(2)] == [False, True]
    assert not built(tmp_path, text, define="OTHER=1").reused
    assert not built(tmp_path, text, "gfx90a").reused
    (tmp_path / "sizes.h").write_text("#define SIZE 5\n")
    assert not built(tmp_path, text).reused


def test_defines_and_folders_reach_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "apart.h").write_text("#define VALUE 1\n")
    text = (
        "#include <hip/hip_runtime.h>\n#include <apart.h>\n"
        "__global__ void k(float* x) { x[0] = VALUE + WIDTH; }\n"
    )
    assert built(tmp_path, text, with_folder=True, define="WIDTH=4").kernels


def test_a_compiler_that_does_not_end_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "source.hip"
    file.write_text(PROGRAM)
    no = build(file, target.load("gfx942"), workdir=tmp_path / "work", timeout_s=0.05)
    assert isinstance(no, NotBuilt)
    assert no.cause == "time"


def test_objects_are_built_for_gpus_alone(tmp_path: Path) -> None:
    file = tmp_path / "source.hip"
    file.write_text(PROGRAM)
    with pytest.raises(ConfigError, match="gfx942"):
        build(file, target.load("x86_64"), workdir=tmp_path)


def test_a_cuda_file_is_told_of_the_headers_of_hip(tmp_path: Path) -> None:
    file = tmp_path / "source.cu"
    file.write_text("#include <hipcub/hipcub.hpp>\n__global__ void k() {}\n")
    no = build(file, target.load("sm_90"), workdir=tmp_path)
    assert isinstance(no, NotBuilt)
    if no.cause == "machine":
        pytest.skip(no.reason)
    assert no.header == "hipcub/hipcub.hpp"
    assert "of hipCUB, and sm_90 has none: it is to be translated" in no.reason


@pytest.mark.full
def test_groups_halves_and_host_libraries_need_no_rocm(tmp_path: Path) -> None:
    text = """#include <hip/hip_runtime.h>
#include <hip/hip_bf16.h>
#include <hip/hip_complex.h>
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_fp16.h>
#include <hipblas/hipblas.h>
#include <hipblaslt/hipblaslt.h>
namespace cg = cooperative_groups;
__global__ void sum(const __half2* x, const __hip_bfloat162* b, float* y) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    __half2 v = __hfma2(x[block.thread_rank()], h2exp(x[0]), __float2half2_rn(1.f));
    float s = __low2float(v) + __high2float(v) + float(__hadd2(b[0], b[1]).x);
    for (int o = tile.size() / 2; o > 0; o /= 2) s += tile.shfl_down(s, o);
    if (tile.thread_rank() == 0) y[tile.meta_group_rank()] = s;
    cg::this_grid().sync();
}
int main() {
    hipblasHandle_t handle;
    float one = 1.f, *a = nullptr;
    hipblasCreate(&handle);
    hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_T, 4, 4, 4, &one, a, 4, a, 4, &one, a, 4);
}
"""
    for arch in ("gfx942", "gfx1100"):
        (kernel,) = built(tmp_path, text, arch).kernels
        assert kernel.kernel == "sum"
