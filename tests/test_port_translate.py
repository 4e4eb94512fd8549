"""CUDA as HIP: what each rewrite keeps, and what is left alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.port import device_build, lint
from portkern.port.hazard import PITFALLS
from portkern.port.translate import Translation, translate
from portkern.port.translate.names import is_hip_header, table
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.spec import target as targets
from tests.port_translate_programs import ANY_WIDTH, DEVICE, LOGICAL

executor = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)


def hip(text: str) -> str:
    return translate(text, "a.cu").text


def body(text: str) -> str:
    """The translation of a piece of device code."""
    return hip(f"__device__ void f() {{ {text} }}").partition("{ ")[2].removesuffix(" }")


def codes(text: str) -> list[str]:
    return [hazard.code for hazard in translate(text, "a.cu").hazards]


# ---- behaviour ----------------------------------------------------------------------------


def output(text: str, folder: Path, target: str, language: Literal["cuda", "hip"]) -> str:
    where = targets.load(target)
    file = folder / f"{target}.cu"
    file.write_text(text, encoding="utf-8")
    how = build.CompileOptions(target=where, language=language)
    built = build.build_program(file, folder / target, how)
    ran = program.run(built, ExecutorOptions(), target=where, language=language, timeout_s=60)
    assert ran.status == 0, ran
    assert not ran.findings, ran.findings
    return ran.output


@pytest.mark.full
@executor
@pytest.mark.parametrize("source", [LOGICAL, ANY_WIDTH], ids=["logical", "any width"])
def test_a_translation_computes_at_64_and_32_lanes_what_the_original_does(
    source: str, tmp_path: Path
) -> None:
    expected = output(source, tmp_path, "sm_90", "cuda")
    assert len(expected.splitlines()) >= 2
    translated = hip(source)
    for target in ("gfx942", "gfx1100"):
        assert output(translated, tmp_path, target, "hip").splitlines() == expected.splitlines()


@executor
def test_the_way_back_computes_the_same(tmp_path: Path) -> None:
    expected = output(LOGICAL, tmp_path, "sm_90", "cuda")
    back = translate(hip(LOGICAL), "a.hip", to="cuda").text
    assert not re.search(r"\bhip[A-Z]|__lane_id|hip/", back)
    (tmp_path / "back").mkdir()
    assert output(back, tmp_path / "back", "sm_90", "cuda") == expected


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_amds_compiler_takes_the_translation(arch: str, tmp_path: Path) -> None:
    file = tmp_path / "warps.hip"
    file.write_text(hip(DEVICE), encoding="utf-8")
    built = device_build.build(file, targets.load(arch), workdir=tmp_path)
    if isinstance(built, device_build.NotBuilt) and built.cause == "machine":
        pytest.skip(built.reason)
    assert isinstance(built, device_build.DeviceBuilt), built
    assert "matches" in {kernel.kernel for kernel in built.kernels}


@pytest.mark.parametrize("source", [LOGICAL, ANY_WIDTH], ids=["logical", "any width"])
def test_what_was_mended_gives_no_hazard_of_masks_and_lanes(source: str) -> None:
    mended = {f"PK{n:03}" for n in (1, 2, 3, 4, 6, 12, 19, 24, 26, 27, 28, 40, 44, 46)}
    for target in (targets.load("gfx942"), targets.load("gfx1100")):
        hazards = [h for h in lint.lint(hip(source), "a.hip", target=target) if h.code in mended]
        assert not hazards, [str(hazard) for hazard in hazards]


# ---- names --------------------------------------------------------------------------------


def test_names_in_strings_and_comments_and_those_of_users_stay() -> None:
    kept = (
        '// cudaMalloc\nconst char* s = "cudaMalloc"; /* cudaFree */ int my_cudaMalloc_wrapper;\n'
        'auto r = R"(cudaFree)"; x.cudaFree(p); y->cudaMalloc; mine::cudaMalloc(q);\n'
        '#include "cudaMalloc.h"\n'
    )
    assert hip(kept) == kept


def test_a_macro_s_body_and_a_global_name_are_translated() -> None:
    got = hip("#define CHECK(x) \\\n  if ((x) != cudaSuccess) \\\n    abort()\n::cudaFree(p);\n")
    assert "(x) != hipSuccess) \\\n" in got
    assert "::hipFree(p);" in got


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("#include <cuda_runtime.h>", "#include <hip/hip_runtime.h>"),
        ('#include "cuda_fp16.h"', '#include "hip/hip_fp16.h"'),
        ("#  include <cublas_v2.h>", "#  include <hipblas/hipblas.h>"),
        ("#include <cub/block/block_scan.cuh>", "#include <hipcub/hipcub.hpp>"),
        (
            "cudaMemcpyAsync(a, b, n, cudaMemcpyHostToDevice, s);",
            "hipMemcpyAsync(a, b, n, hipMemcpyHostToDevice, s);",
        ),
        ("cublasSgemm(h, CUBLAS_OP_N);", "hipblasSgemm(h, HIPBLAS_OP_N);"),
        ("curandState_t s;", "hiprandState_t s;"),
        ("s = cudaMemcpyKind::cudaMemcpyHostToHost;", "s = hipMemcpyKind::hipMemcpyHostToHost;"),
        ("s = mine::cudaMemcpyHostToHost;", "s = mine::cudaMemcpyHostToHost;"),
        ("cufftHandle p; cufftExecC2C(p);", "hipfftHandle p; hipfftExecC2C(p);"),
        ("cub::BlockReduce<int, 128> r;", "hipcub::BlockReduce<int, 128> r;"),
        ("__nv_bfloat16 a; __nv_fp8_e4m3 b;", "__hip_bfloat16 a; __hip_fp8_e4m3 b;"),
        ("thrust::sort(thrust::cuda::par, a, b);", "thrust::sort(thrust::hip::par, a, b);"),
        ("cudaDeviceProp p; p.warpSize;", "hipDeviceProp_t p; p.warpSize;"),
        ('nvtxRangePush("cub");', 'roctxRangePush("cub");'),
    ],
)
def test_names_and_headers_change_by_the_table(cuda: str, expected: str) -> None:
    assert expected in hip(cuda).splitlines()


def test_a_header_that_hip_lacks_is_left_out_where_nothing_of_it_is_used() -> None:
    text = "#include <mma.h>\nusing namespace nvcuda;\n__global__ void k(float* x) { USED }\n"
    assert "mma.h" not in hip(text) and "nvcuda" not in hip(text)
    used = text.replace("USED", "wmma::fragment<A> a;")
    assert "#include <mma.h>\nusing namespace nvcuda;\n" in hip(used)


def test_a_name_or_library_without_a_counterpart_is_a_hazard() -> None:
    assert codes("cudaLaunchKernelExC(&c, k, a);") == ["PK101"]
    assert codes("#include <cudnn.h>\n") == ["PK102"]
    assert codes("#include <cuda/barrier>\n") == ["PK102"]
    assert codes("#define S(...) __shfl_sync(__VA_ARGS__)\n") == ["PK103"]
    assert codes("#define S __ballot_sync(m,\n") == ["PK107"]
    assert codes("cg::exclusive_scan(tile, v);") == ["PK104"]
    assert codes("#if CUDART_VERSION == 9000 || X\n#endif\n") == ["PK105"]
    assert set(codes("int l = warpSize; int w = p.warpSize; __syncwarp();")) == {"PK108"}
    assert {f"PK{n}" for n in range(101, 109)} <= set(PITFALLS)


def test_the_table_is_whole() -> None:
    names = table()
    assert len(names.names) > 6000
    assert all(not name.hip or is_hip_header(name.hip) for name in names.headers.values())
    assert all(" " not in name.hip for name in (*names.names.values(), *names.headers.values()))
    for hip_name, cuda_name in names.back.items():
        assert names.names[cuda_name].hip == hip_name
    kept = [name.hip for name in names.names.values() if name.hip]
    # What HIP's names become is a name of CUDA's, and none is translated twice.
    assert not [name for name in kept if names.names.get(name) and names.names[name].hip != name]
    for common in ("cudaMalloc", "cudaMemcpy", "cudaStream_t", "cudaGetLastError", "cublasSgemm"):
        assert names.back[names.names[common].hip] == common


# ---- warps --------------------------------------------------------------------------------

HALF = "(__lane_id() & 32)"


@pytest.mark.parametrize("mask", ["0xffffffff", "0xFFFFFFFFu", "-1", "~0u", "(unsigned)-1", "~0"])
def test_all_lanes_need_no_mask(mask: str) -> None:
    assert body(f"v = __shfl_down_sync({mask}, v, 16);") == "v = __shfl_down(v, 16, 32);"
    assert body(f"__syncwarp({mask});") == "__syncwarp();"


def test_a_ballot_is_the_caller_s_half() -> None:
    got = body("unsigned m = __ballot_sync(0xffffffff, x > 0);")
    assert got == f"unsigned m = (unsigned)(__ballot(x > 0) >> {HALF});"
    assert body("m = __activemask();") == f"m = (unsigned)(__activemask() >> {HALF});"


def test_a_mask_that_is_not_all_lanes_moves_to_the_caller_s_half() -> None:
    moved = f"(unsigned long long)(unsigned)(m) << {HALF}"
    assert body("v = __shfl_sync(m, v, 3, 8);") == f"v = __shfl_sync({moved}, v, 3, 8);"
    assert body("__syncwarp(m);") == f"__syncwarp({moved});"


def test_a_named_mask_of_all_lanes_is_known_where_it_never_changes() -> None:
    full = "#define FULL 0xffffffff\n__device__ void f() { g(__shfl_xor_sync(FULL, v, 1)); }"
    assert "g(__shfl_xor(v, 1, 32));" in hip(full)
    local = "unsigned m = 0xffffffffu; v = __shfl_sync(m, v, 0);"
    assert "__shfl(v, 0, 32)" in body(local)
    assert "__shfl_sync(" in body(local + " m &= 3;")
    assert "__shfl_sync(" in hip("__device__ void f(unsigned m) { v = __shfl_sync(m, v, 0); }")


def test_calls_in_each_other_s_arguments_nest() -> None:
    got = body("if (__any_sync(-1, __shfl_xor_sync(__activemask(), a, 1))) b();")
    assert got.startswith(
        "if (((unsigned)(__ballot(__shfl_xor_sync((unsigned long long)(unsigned)("
    )
    assert got.count("(") == got.count(")")


def test_shuffles_by_pytorchs_names_keep_warps_of_32_lanes() -> None:
    text = "#include <ATen/cuda/DeviceUtils.cuh>\n__device__ float f(float v) { CALL }\n"
    assert "WARP_SHFL_XOR(v, 1, 32);" in hip(text.replace("CALL", "return WARP_SHFL_XOR(v, 1);"))
    given = text.replace("CALL", "return WARP_SHFL_XOR(v, 1, 16);")
    assert "WARP_SHFL_XOR(v, 1, 16);" in hip(given)
    own = "#define WARP_SHFL_XOR(v, by) own(v, by)\n" + text
    assert "WARP_SHFL_XOR(v, 1);" in hip(own.replace("CALL", "return WARP_SHFL_XOR(v, 1);"))


def test_code_for_any_width_keeps_it() -> None:
    assert "warpSize / 2" in hip(ANY_WIDTH)
    assert "__shfl_down(v, o)" in hip(ANY_WIDTH)
    assert "warpSize" not in hip(ANY_WIDTH.replace("warpSize / 2", "16"))
    assert "s[1024 / 32]" in hip(ANY_WIDTH.replace("s[32]", "s[1024 / warpSize]"))


def test_an_attribute_that_the_file_defines_stays() -> None:
    own, kernel = (
        "#define __grid_constant__\n",
        "__global__ void k(const __grid_constant__ int n);\n",
    )
    assert hip(own + kernel).endswith(own + kernel)
    assert "__grid_constant__" not in hip(kernel)


def test_a_variable_called_warp_size_is_the_user_s() -> None:
    kept = "__device__ int f(int warpSize) { return warpSize / 2; }"
    assert kept in hip(kept)


# ---- the rest of device code --------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("__launch_bounds__(256, 8)", "__launch_bounds__(256, 8)"),
        ("__launch_bounds__(128, 4)", "__launch_bounds__(128, 2)"),
        ("__launch_bounds__(1024, 2)", "__launch_bounds__(1024, 8)"),
        ("__launch_bounds__(256)", "__launch_bounds__(256)"),
        ("__launch_bounds__(T, 2)", "__launch_bounds__(T, ((T) * (2) + 255) / 256)"),
        ("__launch_bounds__(², 2)", "__launch_bounds__(², ((²) * (2) + 255) / 256)"),
    ],
)
def test_launch_bounds_count_waves_of_a_simd(cuda: str, expected: str) -> None:
    assert f"void {expected} k() {{}}" in hip(f"__global__ void {cuda} k() {{}}")


@pytest.mark.parametrize("bounds", ["², 2", "256, ²", "0, 2"])
def test_launch_bounds_that_count_nothing_are_left_on_the_way_back(bounds: str) -> None:
    text = f"__global__ void __launch_bounds__({bounds}) k() {{}}\n"
    assert translate(text, "a.hip", to="cuda").text == text


def test_cache_hints_are_streaming_loads_of_numbers_and_else_plain_ones() -> None:
    got = hip("__device__ float f(const float* p, int4* q) { __stcg(q, a); return __ldcs(p + 1); }")
    assert "return __builtin_nontemporal_load(p + 1);" in got
    assert "(*(q) = (a));" in got
    assert "x = (*((const int4*)p));" in hip("x = __ldcs((const int4*)p); __global__")


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ('asm("mov.u32 %0, %%laneid;" : "=r"(l));', "(l) = (__lane_id() & 31);"),
        ('asm volatile("membar.gl;" ::: "memory");', "__threadfence();"),
        ('asm("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(p));', "(x) = ((const float*)(p))[0];"),
        (
            'asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));',
            "(d) = fmaf((a), (b), (c));",
        ),
        (
            'asm("st.global.v2.f32 [%0], {%1, %2};" :: "l"(p), "f"(a), "f"(b));',
            "((float*)(p))[0] = (a), ((float*)(p))[1] = (b);",
        ),
        (
            'asm("lop3.b32 %0, %1, %2, %3, 0xc0;" : "=r"(d) : "r"(a), "r"(b), "r"(c));',
            "(d) = ((a) & (b) & ~(c)) | ((a) & (b) & (c));",
        ),
        ("__trap(); __nanosleep(n);", "__builtin_trap(); __builtin_amdgcn_s_sleep(1);"),
    ],
)
def test_ptx_and_intrinsics_with_a_known_equivalent_are_written_so(
    cuda: str, expected: str
) -> None:
    assert body(cuda) == expected


def test_other_ptx_stays_for_the_lint() -> None:
    kept = 'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(a), "l"(b));'
    assert body(kept) == kept


def test_guards_of_old_architectures_hold_on_hip_and_those_of_ptx_do_not() -> None:
    assert hip("#if __CUDA_ARCH__ >= 600\nint a;\n#endif\n").startswith(
        "#if (defined(__HIP_DEVICE_COMPILE__) || __CUDA_ARCH__ >= 600)\n"
    )
    assert hip("#ifdef __CUDA_ARCH__\n#endif\n").startswith(
        "#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)\n"
    )
    assert hip("#if (CUDART_VERSION < 9000) && A\n#endif\n").startswith(
        "#if ((!defined(__HIPCC__) && CUDART_VERSION < 9000)) && A\n"
    )
    assert hip("#if __CUDA_ARCH__ < 600\n#endif\n").startswith(
        "#if (!defined(__HIP_DEVICE_COMPILE__) && __CUDA_ARCH__ < 600)\n"
    )
    for kept in (
        "#if __CUDA_ARCH__ >= 900\nint a;\n#endif\n",
        '#if __CUDA_ARCH__ >= 700\nasm("x");\n#endif\n',
    ):
        assert hip(kept) == kept


def test_a_launch_in_a_macro_stays_as_it_is() -> None:
    launch = "#define GO(k, ...) \\\n  k<<<1, 32, 0, s>>>(__VA_ARGS__)\n"
    assert launch in hip(launch)


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("k << <g, b >> > (x);", "k <<<g, b >>> (x);"),
        ("k<T<3>> << < g, f<2>(), 8 >> >(x);", "k<T<3>> <<< g, f<2>(), 8 >>>(x);"),
        ("k < < < g, b > > > (x);", "k <<< g, b >>> (x);"),
        ("k<<<g, b>>>(x);", "k<<<g, b>>>(x);"),
        ("out << x < y; a >> b > c;", "out << x < y; a >> b > c;"),
        ("operator<< <T>(a, b >> c);", "operator<< <T>(a, b >> c);"),
    ],
)
def test_the_chevrons_of_a_launch_stand_together(cuda: str, expected: str) -> None:
    assert hip(f"void f() {{ {cuda} }}").endswith(f"void f() {{ {expected} }}")


def test_the_chevrons_of_a_launch_in_a_macro_stand_together_on_their_lines() -> None:
    go = "#define GO(f, ...) f << \\\n <1, 2 >> >(__VA_ARGS__)\n"
    text = f"#include <cuda_runtime.h>\n{go}#define ON(f) f << <1, 2 >> >\nint x;\n"
    done = hip(text)
    assert done.count("<<<") == done.count(">>>") == 2
    assert done.splitlines()[-1] == "int x;"
    assert done.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("macros", "use", "expected"),
    [
        (
            "#define OP(kind, v) __shfl_##kind##_sync(~0u, v, 1)",
            "OP(xor, v)",
            "__shfl_xor(v, 1, 32)",
        ),
        (
            "#define NAME(k) __shfl_##k\n#define OP(k, v) NAME(k)(~0u, v, 1)",
            "OP(up_sync, v)",
            "__shfl_up(v, 1, 32)",
        ),
        (
            "#define ALL(k) OP(k, v)\n#define OP(k, v) __shfl_##k##_sync(~0u, v, 1)",
            "ALL(down)",
            "__shfl_down(v, 1, 32)",
        ),
        ("#define CALL(f, ...) cuda##f(__VA_ARGS__)", "CALL(Free, (v))", "hipFree((v))"),
        ("#define OWN(k) my_##k(1)", "OWN(sum)", "OWN(sum)"),
    ],
)
def test_a_name_of_cuda_that_a_macro_pastes_is_translated_where_the_macro_is_used(
    macros: str, use: str, expected: str
) -> None:
    text = f"{macros}\n__device__ void f(int v) {{\n  {use};\n}}\n"
    line = next(line for line in hip(text).splitlines() if line.startswith("  "))
    assert line == f"  {expected};"


def test_a_macro_of_two_definitions_that_pastes_stays_for_the_compiler() -> None:
    text = (
        "#if A\n#define OP(k) __shfl_##k##_sync(~0u, 1, 1)\n#else\n"
        "#define OP(k) __shfl_##k(1, 1)\n#endif\nint x = OP(xor);\n"
    )
    assert "int x = OP(xor);" in hip(text)


DEPENDENT = """
template <int N> struct Sum { __device__ Sum(float* p); __device__ float of(float v); };
template <int N> struct Traits {
  static constexpr int kThreads = N;
  using SumT = Sum<N>;
  typedef float Value;
  template <class U> struct Of { using type = U; };
  template <class U> static __device__ U make(U u) { return u; }
  static __device__ int count(int n) { return n; }
};
"""


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("v = T::SumT(s).of(v);", "v = typename T::SumT(s).of(v);"),
        ("T::Value x = 0;", "typename T::Value x = 0;"),
        ("float x = (T::Value)v;", "float x = (typename T::Value)v;"),
        ("__shared__ float s[sizeof(T::Value)];", "__shared__ float s[sizeof(typename T::Value)];"),
        ("using A = Traits<T::kThreads>::SumT;", "using A = typename Traits<T::kThreads>::SumT;"),
        (
            "using K = Traits<N<T>>; K::SumT(s).of(v);",
            "using K = Traits<N<T>>; typename K::SumT(s).of(v);",
        ),
        ("auto x = T::make<float>(v);", "auto x = T::template make<float>(v);"),
        ("T::Of<float>::type x;", "typename T::template Of<float>::type x;"),
        ("int n = T::kThreads < v;", "int n = T::kThreads < v;"),
        ("int n = T::count(3);", "int n = T::count(3);"),
        ("typename T::SumT sum(s);", "typename T::SumT sum(s);"),
        ("typename T::template Of<float>::type x;", "typename T::template Of<float>::type x;"),
        ("Traits<4>::SumT(s).of(v);", "Traits<4>::SumT(s).of(v);"),
        ("T::Unknown(s).of(v);", "T::Unknown(s).of(v);"),
    ],
)
def test_what_depends_on_a_template_is_said_to_be_a_type_where_it_is_one(
    cuda: str, expected: str
) -> None:
    head = f"{DEPENDENT}template <class T> __global__ void k(float* s, float v) {{\n  "
    assert hip(f"{head}{cuda}\n}}\n").partition("float v) {\n  ")[2] == f"{expected}\n}}\n"


def test_bases_members_and_names_outside_of_templates_need_no_typename() -> None:
    text = (
        f"#include <hip/hip_runtime.h>\n{DEPENDENT}"
        "template <class T> struct A : T::SumT { A() : T::SumT(nullptr) {} struct B; void f(); };\n"
        "template <class T> struct A<T>::B : public T::SumT { using T::SumT::of; };\n"
        "template <class T> void A<T>::f() {}\nstruct T { struct SumT {}; };\nT::SumT x;\n"
    )
    text = text.replace("hip/hip", "cuda")
    assert not [change for change in translate(text, "a.cu").changes if "type" in change.why]


def test_hips_launch_is_cudas_on_the_way_back() -> None:
    launch = "hipLaunchKernelGGL(HIP_KERNEL_NAME(k<1>), g, b, 0, s, x, y);"
    text = f"#include <hip/hip_runtime.h>\nvoid f() {{ {launch} }}"
    back = translate(text, "a.hip", to="cuda").text
    assert "k<1><<< g, b, 0, s>>>( x, y);" in back


# ---- whole files --------------------------------------------------------------------------


def test_lines_stay_where_they_are() -> None:
    assert hip(LOGICAL).count("\n") == LOGICAL.count("\n")
    assert hip("// a\n\nint x;\n__global__ void k() {}\n").splitlines()[:3] == [
        "// a",
        "#include <hip/hip_runtime.h>",
        "int x;",
    ]
    guarded = hip("#ifndef A_H\n#define A_H\n__device__ int f();\n#endif\n")
    assert guarded.splitlines()[2] == "#include <hip/hip_runtime.h>"


def test_every_change_says_where_and_why() -> None:
    for change in translate(LOGICAL, "a.cu").changes:
        assert change.why
        assert change.before != change.after
        assert 1 <= change.line <= LOGICAL.count("\n") + 1


def test_hip_text_and_plain_text_come_back_as_they_are() -> None:
    ours = "#include <hip/hip_runtime.h>\nvoid f() { cudaMalloc(); __shfl_sync(0xffffffff, v, 0); }"
    got = translate(ours, "a.hip")
    assert got == Translation(ours, (), got.hazards)
    assert [hazard.code for hazard in got.hazards] == ["PK106"]
    assert not translate(hip(LOGICAL), "a.hip").hazards
    assert translate(LOGICAL, "a.cu", to="cuda").text == LOGICAL
    assert hip("int main() { return 16; }\n") == "int main() { return 16; }\n"


OF_BOTH = """\
#include <cuda_runtime.h>
#if defined(USE_ROCM)
#define cudaGraphNode_t hipGraphNode_t
#define WIDE __ballot(1)
#else
#define WIDE __ballot_sync(0xffffffffu, 1)
#endif
void f(float* x) { cudaFree(x); }
"""


def test_cuda_with_parts_for_amd_is_translated_but_for_these() -> None:
    got = hip(OF_BOTH)
    assert "#include <hip/hip_runtime.h>" in got and "hipFree(x)" in got
    assert got.splitlines()[1:5] == OF_BOTH.splitlines()[1:5]
    assert hip(got) == got


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (
            'AT_DISPATCH_FLOATING_TYPES(x.type(), "f", ([&] { y.type(); f(x.type()); }));',
            'AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { y.type(); f(x.type()); }));',
        ),
        (
            'AT_DISPATCH_ALL_TYPES_AND(at::kHalf, p->x[0].type(), "f", [&] {});',
            'AT_DISPATCH_ALL_TYPES_AND(at::kHalf, p->x[0].scalar_type(), "f", [&] {});',
        ),
        ("AT_CHECK(x.type().is_cuda());", "TORCH_CHECK(x.type().is_cuda());"),
        (
            'AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "f", [&] {});',
            'AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "f", [&] {});',
        ),
    ],
)
def test_what_pytorch_gave_up_is_called_by_its_name_of_today(cuda: str, expected: str) -> None:
    head = "#include <cuda_runtime.h>\nvoid run(at::Tensor x) {\n"
    assert hip(f"{head}{cuda}\n}}\n").splitlines()[2] == expected
    own = f"#define AT_CHECK(x) x\n{head}AT_CHECK(x);\n}}\n"
    assert "TORCH_CHECK" not in hip(own)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            "Half __shfl_sync(unsigned m, Half v, int l) { return __shfl_sync(m, v.plain(), l); }",
            "(unsigned long long)(unsigned)(m) << (__lane_id() & 32), v.plain(), l, 32)",
        ),
        (
            "int first(unsigned m, int v) { return __shfl_sync(m, v, 0) + __any_sync(~0u, v); }",
            "(unsigned long long)(unsigned)(m) << (__lane_id() & 32), v, 0, 32)",
        ),
    ],
)
def test_masks_beside_parts_for_amd_are_of_32_bits(function: str, expected: str) -> None:
    parts = """#ifdef USE_ROCM
#define ROTATE(mask, v, l) __shfl(v, l)
#else
#define ROTATE __shfl_sync
#endif
"""
    got = hip(f"__device__ {function}\n{parts}")
    assert expected in got and got.endswith(parts)


def test_a_header_with_warp_functions_for_amd_alone_stays() -> None:
    text = """#ifdef USE_ROCM
__device__ int first(int v) { return __shfl_sync(0xffffffffffffffffull, v, 0); }
#endif
"""
    assert hip(text) == text


def test_a_file_that_names_each_runtime_to_its_compiler_stays() -> None:
    text = (
        "#ifdef __HIP_PLATFORM_AMD__\n#include <hip/hip_runtime.h>\n#define gpuFree hipFree\n"
        "#else\n#include <cuda_runtime.h>\n#define gpuFree cudaFree\n#endif\n"
        "void f(float* x) { gpuFree(x); }\n"
    )
    assert hip(text) == text


def test_names_that_stand_for_each_other_and_deep_nesting_end() -> None:
    circle = "#define A B\n#define B A\n__device__ void f() { v = __shfl_sync(A, v, 0); }\n"
    assert "__shfl_sync((unsigned long long)(unsigned)(A)" in hip(circle)
    deep = "__device__ int f() { return " + "__shfl_sync(m, " * 1000 + "v" + ", 0)" * 1000 + "; }"
    assert hip(deep).count("(__lane_id() & 32)") == 1000


FRAGMENTS = st.sampled_from(
    [
        *re.findall(r"[^\n]*\n", LOGICAL),
        "__shfl_sync(",
        ")",
        "#if __CUDA_ARCH__ >= 600\n",
        "#endif\n",
        "/*",
        "*/",
        '"',
        'R"(',
        "\\\n",
        "<<<",
        ">>>",
        "cub::",
        "asm(",
        "#define X __ballot_sync(m,\n",
        "warpSize",
        "#include <cub/",
        "__launch_bounds__(,)",
        "cg::reduce(a, b, c)",
        "\r\n",
        "é",
    ]
)


@given(st.lists(FRAGMENTS, max_size=30))
def test_any_text_is_translated_once_and_for_all(parts: list[str]) -> None:
    first = translate("".join(parts), "a.cu")
    again = translate(first.text, "a.cu")
    assert again.text == first.text
    back = translate(first.text, "a.cu", to="cuda")
    assert translate(back.text, "a.cu", to="cuda").text == back.text
