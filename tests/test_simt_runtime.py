"""How threads, warps and blocks of the executor behave, one program each."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from portkern.simt import diagnostics
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.machine import Language
from portkern.simt.execute.options import ExecutorOptions, Mode, Order
from portkern.simt.execute.program import ProgramOutcome
from portkern.simt.translate.rewrite import rewrite
from portkern.spec import target
from portkern.toolchain.run_tool import run_tool

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)

PRELUDE = """
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>
template <class T> T* device(int n) { T* p; cudaMalloc(&p, n * sizeof(T)); cudaMemset(p, 0, n * sizeof(T)); return p; }
template <class T> std::vector<T> host(const T* p, int n) { std::vector<T> v(n); cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDefault); return v; }
template <class T> void show(const T* p, int n) { for (T x : host(p, n)) printf("%g ", (double)x); printf("\\n"); }
#line 1 "kernel.cu"
"""
CHECKED = ExecutorOptions(races=True, bounds=True, uninitialised=True, alignment=True)
ORDERS: tuple[Order, ...] = ("forward", "lockstep", "reverse", "random", "priority")

Runner = Callable[..., ProgramOutcome]


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Builds ``source`` with the prelude and runs it; ``mode`` check looks for memory errors."""

    def runner(
        source: str,
        how: ExecutorOptions | None = None,
        *,
        mode: Mode = "fast",
        warp: int | None = None,
        at: str = "",
        timeout_s: float = 30.0,
    ) -> ProgramOutcome:
        file = tmp_path / "kernel.cu"
        file.write_text(PRELUDE + textwrap.dedent(source), encoding="utf-8")
        where = target.load(at) if at else None
        built = build.build_program(
            file, tmp_path / "kernel", build.CompileOptions(mode=mode, target=where)
        )
        how = how or (CHECKED if mode == "check" else ExecutorOptions())
        return program.run(built, how, warp=warp, target=where, timeout_s=timeout_s)

    return runner


def numbers(outcome: ProgramOutcome) -> list[float]:
    assert outcome.status == 0, outcome
    return [float(word) for word in outcome.output.split()]


def races_of(source: str) -> set[tuple[str, int]]:
    """Codes and lines of the races that a program's comments tell of."""
    lines = enumerate(source.splitlines(), 1)
    return {("SX201", number) for number, line in lines if line.endswith("// SX201")}


# ---- threads and blocks


def test_what_many_launches_meet_at_one_place_is_counted_to_the_end(run: Runner) -> None:
    source = """
        __global__ void k(int* x) { x[0] = threadIdx.x; }
        int main(int n, char**) { int* x = device<int>(1); for (n = 0; n < LAUNCHES; ++n) k<<<1, 64>>>(x); }
    """
    once, often = (run(source.replace("LAUNCHES", n), mode="check") for n in ("1", "41"))
    [first], [all_] = ([f for f in o.findings if f.code == "SX202"] for o in (once, often))
    assert all_.count == 41 * first.count


def test_every_thread_of_every_block_runs_once(run: Runner) -> None:
    counted = numbers(
        run("""
        __global__ void k(int* x) {
            int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
            int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
            x[b * 30 + t] += b * 100 + t;
        }
        int main() { int* x = device<int>(24 * 30); k<<<dim3(4, 3, 2), dim3(5, 3, 2)>>>(x); show(x, 24 * 30); }
    """)
    )
    assert counted == [b * 100 + t for b in range(24) for t in range(30)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("threads", [1, 31, 64, 257, 1024])
def test_a_barrier_separates_phases_in_every_order(run: Runner, order: Order, threads: int) -> None:
    outcome = run(
        f"""
        __global__ void k(int* x) {{
            __shared__ int s[{threads}];
            for (int round = 0; round < 3; ++round) {{
                s[threadIdx.x] = threadIdx.x + round;
                __syncthreads();
                x[threadIdx.x] += s[(threadIdx.x + 1) % {threads}];
                __syncthreads();
            }}
        }}
        int main() {{ int* x = device<int>({threads}); k<<<1, {threads}>>>(x); show(x, {threads}); }}
        """,
        ExecutorOptions(order=order, seed=3),
    )
    assert numbers(outcome) == [3 * ((t + 1) % threads) + 3 for t in range(threads)]
    assert not outcome.findings


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_what_a_thread_holds_in_registers_it_holds_after_it_waited(run: Runner, mode: Mode) -> None:
    kept = range(12)  # of each type: more than there are registers, together
    begin = "".join(f"long i{k} = t * {2 * k + 3}; double d{k} = t * {k}.5;" for k in kept)
    step = "".join(f"i{k} += 5 * i{(k + 1) % 12}; d{k} += 3 * d{(k + 1) % 12};" for k in kept)
    total = "+".join(f"i{k} % 65536 + d{k} / 1024" for k in kept)
    outcome = run(
        f"""
        struct Plain {{ void wait(unsigned) {{}} }};
        struct Waiting {{
            __device__ __forceinline__ void wait(unsigned by) {{
                __syncthreads();
                if (__shfl_xor_sync(~0u, threadIdx.x, by) != (threadIdx.x ^ by)) __trap();
                __syncwarp();
            }}
        }};
        template <class W> __host__ __device__ inline double work(W w, long t) {{
            {begin}
            w.wait(1); {step} w.wait(2); {step} w.wait(4); {step}
            return {total};
        }}
        __global__ void k(double* x) {{ x[threadIdx.x] = work(Waiting{{}}, threadIdx.x); }}
        int main() {{
            double* x = device<double>(96);
            k<<<1, 96>>>(x);
            std::vector<double> got = host(x, 96);
            for (long t = 0; t < 96; ++t) printf("%d ", got[t] == work(Plain{{}}, t));
        }}
        """,
        mode=mode,
    )
    assert numbers(outcome) == [1] * 96


def test_blocks_spread_over_os_threads_give_the_same_result(run: Runner) -> None:
    source = """
        __global__ void k(unsigned* sum) {
            __shared__ unsigned part;
            if (threadIdx.x == 0) part = 0;
            __syncthreads();
            atomicAdd(&part, threadIdx.x + blockIdx.x);
            __syncthreads();
            if (threadIdx.x == 0) atomicAdd(sum, part);
        }
        int main() { unsigned* x = device<unsigned>(1); for (int i = 0; i < 5; ++i) k<<<200, 96>>>(x); show(x, 1); }
    """
    want = 5 * sum(t + b for t in range(96) for b in range(200))
    assert numbers(run(source, ExecutorOptions(workers=1))) == [want]
    assert numbers(run(source, ExecutorOptions(workers=2))) == [want]


def test_votes_of_a_barrier_count_all_threads(run: Runner) -> None:
    assert numbers(
        run("""
        __global__ void k(int* x) {
            int c = __syncthreads_count(threadIdx.x % 3 == 0);
            int a = __syncthreads_and(threadIdx.x < 99), o = __syncthreads_or(threadIdx.x == 98);
            if (threadIdx.x == 5) { x[0] = c; x[1] = a != 0; x[2] = o != 0; }
        }
        int main() { int* x = device<int>(3); k<<<1, 100>>>(x); show(x, 3); }
    """)
    ) == [34, 0, 1]


def test_a_polling_thread_lets_the_one_it_waits_for_run(run: Runner) -> None:
    outcome = run("""
        __global__ void k(int* flag, int* x) {
            if (threadIdx.x == 0) { while (atomicAdd(flag, 0) == 0) {} *x = 7; }
            else if (threadIdx.x == 63) { __threadfence(); atomicExch(flag, 1); }
        }
        int main() { int *f = device<int>(1), *x = device<int>(1); k<<<1, 64>>>(f, x); show(x, 1); }
    """)
    assert numbers(outcome) == [7]


def test_a_block_may_wait_for_a_later_block(run: Runner) -> None:
    outcome = run("""
        __global__ void k(int* flag, int* x) {
            if (blockIdx.x == 0) { while (atomicAdd(flag, 0) < 3) {} *x = 7; }
            else { __threadfence(); atomicAdd(flag, 1); }
        }
        int main() { int *f = device<int>(1), *x = device<int>(1); k<<<4, 1>>>(f, x); show(x, 1); }
    """)
    assert numbers(outcome) == [7]


def test_a_cooperative_grid_meets_at_its_barrier(run: Runner) -> None:
    outcome = run(
        """
        #include <cooperative_groups.h>
        __global__ void k(int* x, int* y) {
            x[blockIdx.x * 32 + threadIdx.x] = blockIdx.x;
            cooperative_groups::this_grid().sync();
            y[blockIdx.x * 32 + threadIdx.x] = x[(7 - blockIdx.x) * 32 + threadIdx.x];
        }
        int main() {
            int *x = device<int>(256), *y = device<int>(256);
            void* arguments[] = {&x, &y};
            cudaLaunchCooperativeKernel((void*)k, dim3(8), dim3(32), arguments, 0, 0);
            show(y, 256);
        }
    """,
        mode="check",
    )
    assert numbers(outcome) == [7 - b for b in range(8) for _ in range(32)]
    assert not outcome.findings


# ---- warps


@pytest.mark.parametrize("warp", [32, 64])
def test_the_warp_has_the_width_of_the_target(run: Runner, warp: int) -> None:
    outcome = run(
        """
        __global__ void k(int* x) { x[threadIdx.x] = __popcll((unsigned long long)__activemask()) * 100 + warpSize; }
        int main() { int* x = device<int>(64); k<<<1, 64>>>(x); show(x, 64); }
    """,
        warp=warp,
    )
    assert {v % 100 for v in numbers(outcome)} == {warp}


@pytest.mark.parametrize("order", ORDERS)
def test_a_butterfly_sums_a_warp(run: Runner, order: Order) -> None:
    outcome = run(
        """
        __global__ void k(float* x) {
            float v = threadIdx.x;
            for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
            x[threadIdx.x] = v;
        }
        int main() { float* x = device<float>(96); k<<<1, 96>>>(x); show(x, 96); }
    """,
        ExecutorOptions(order=order, seed=5),
    )
    assert numbers(outcome) == [
        sum(range(w * 32, w * 32 + 32)) for w in range(3) for _ in range(32)
    ]


def test_lanes_of_a_branch_are_the_active_ones(run: Runner) -> None:
    outcome = run("""
        __global__ void k(int* x) {
            unsigned active = 0;
            if (threadIdx.x % 4 == 1) active = __activemask();
            x[threadIdx.x] = __popc(active);
        }
        int main() { int* x = device<int>(32); k<<<1, 32>>>(x); show(x, 32); }
    """)
    assert numbers(outcome) == [8 if t % 4 == 1 else 0 for t in range(32)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("active", ["__activemask()", "cg::coalesced_threads().ballot(1)"])
def test_lanes_of_other_rounds_of_a_loop_are_not_active_beside_those_in_a_branch(
    active: str, order: Order, run: Runner
) -> None:
    source = """
        #include <cooperative_groups.h>
        namespace cg = cooperative_groups;
        __global__ void k(int* x) {
            int key = threadIdx.x * 7 % 5, same = 0;
            bool mine = true;
            while (mine) {
                const unsigned all = __activemask();
                if (key == __shfl_sync(all, key, __ffs(all) - 1)) {
                    same = __popc(ACTIVE);
                    mine = false;
                }
            }
            x[threadIdx.x] = same;
        }
        int main() { int* x = device<int>(64); k<<<1, 64>>>(x); show(x, 64); }
    """
    outcome = run(source.replace("ACTIVE", active), ExecutorOptions(order=order))
    keys = [t * 7 % 5 for t in range(64)]
    assert numbers(outcome) == [keys[t // 32 * 32 :][:32].count(keys[t]) for t in range(64)]


@pytest.mark.parametrize(
    ("order", "intended"), [("lockstep", True), ("forward", False), ("reverse", False)]
)
def test_lanes_that_rely_on_lockstep_are_right_in_that_order_only(
    run: Runner, order: Order, intended: bool
) -> None:
    sums = numbers(
        run(
            """
        __global__ void k(int* x) {
            __shared__ volatile int s[192];
            const int t = threadIdx.x;
            s[t] = t * t;
            s[t + 96] = 0;
            __syncthreads();
            if (t % 32 < 16) {
                volatile int* mine = s + t;
                mine[0] = mine[0] + mine[16];
                mine[0] = mine[0] + mine[8];
                mine[0] = mine[0] + mine[4];
                mine[0] = mine[0] + mine[2];
                mine[0] = mine[0] + mine[1];
            }
            if (t % 32 == 0) x[t / 32] = s[t];
        }
        int main() { int* x = device<int>(3); k<<<1, 96>>>(x); show(x, 3); }
    """,
            ExecutorOptions(order=order),
            mode="check",
        )
    )
    expected = [sum(t * t for t in range(w, w + 32)) for w in (0, 32, 64)]
    assert (sums == expected) == intended


# ---- what goes wrong has a number and a line


def found(outcome: ProgramOutcome, code: str) -> int:
    """The line of the only finding with ``code``."""
    assert outcome.codes == {code}, [str(finding) for finding in outcome.findings]
    return outcome.findings[0].line


LAUNCH = "int main() { int* x = device<int>(64); k<<<1, 64>>>(x); return cudaDeviceSynchronize() != cudaSuccess; }"


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("if (threadIdx.x < 40)\n__syncthreads();\nelse\n__syncthreads();", "SX301", 3),
        ("if (threadIdx.x < 40) return;\n__syncthreads();", "SX302", 3),
        (
            "if (threadIdx.x < 40)\nx[0] = __shfl_sync(~0u, 1, 0);\nelse __syncthreads();",
            "SX303",
            3,
        ),
        ("if (threadIdx.x < 16)\n__syncwarp(~0u << 16);", "SX304", 3),
        ("x[0] = __any_sync(threadIdx.x % 2 ? ~0u : 0x55555555u, 1);", "SX305", 2),
        ("if (threadIdx.x % 2)\nx[0] = __shfl_sync(0xaaaaaaaa, 1, 0);", "SX306", 3),
        ("x[0] = __shfl_sync(~0u, 1, 0,\n24);", "SX307", 2),
        ("while (atomicAdd(x, 0) == 0) {}", "SX303", 2),
        ("for (int i = 0; i < 10; i += x[1]) x[2] = i;", "SX405", 2),
        ("for (int i = 0; i < 10; i += x[1]) __syncthreads();", "SX405", 2),
        ("int* p = nullptr;\np[threadIdx.x] = 1;", "SX112", 3),
        ("x[1 << 20] = 1;", "SX101", 2),
        ("x[0] = 5 / x[threadIdx.x];", "SX503", 2),
        ("__trap();", "SX408", 2),
    ],
)
def test_a_defect_is_reported_with_its_line_and_the_program_goes_on(
    run: Runner, body: str, code: str, line: int
) -> None:
    limit_s = 1.0 if code == "SX405" else 30.0  # for the others, far from when they end
    source = f"__global__ void k(int* x) {{\n{body}\n}}\n{LAUNCH}"
    outcome = run(source, ExecutorOptions(limit_s=limit_s))
    assert found(outcome, code) == line
    assert outcome.status in (0, 1), outcome


@pytest.mark.parametrize(
    "body",
    [
        "int i = threadIdx.x; do { i = i * 5 + 1; } while (i & 0xfff); atomicAdd(x, 1);",
        "while (atomicAdd(x, 0) < (int)blockIdx.x) {} __syncthreads();"
        " if (threadIdx.x == 0) atomicAdd(x, 1);",
    ],
    ids=["compute", "wait for the block before"],
)
def test_stacks_of_blocks_that_give_way_leave_memory_to_others(run: Runner, body: str) -> None:
    source = f"""
        #include <sys/resource.h>
        __global__ void k(int* x) {{ {body} }}
        int main() {{
            int *x = device<int>(1), *large, at;
            rlimit most = {{1 << 30, 1 << 30}};
            if (setrlimit(RLIMIT_DATA, &most)) return 2;
            k<<<200, 128>>>(x);
            if (cudaDeviceSynchronize() || cudaMalloc(&large, 300 << 20)) return 3;
            cudaMemcpy(&at, x, 4, cudaMemcpyDeviceToHost);
            printf("%d", at);
        }}
    """
    outcome = run(source, ExecutorOptions(workers=2, limit_s=30.0))
    assert outcome.output in ("25600", "200"), outcome
    assert not outcome.findings


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_local_array_may_be_as_large_as_on_a_gpu(run: Runner, mode: Mode) -> None:
    large = run(
        """
        __global__ void k(int* x) {
            unsigned char all[500 * 1024];
            for (int i = 0; i < 500; ++i) all[i * 1024 + threadIdx.x] = i;
            __syncthreads();
            int sum = 0;
            for (int i = 0; i < 500; ++i) sum += all[i * 1024 + threadIdx.x];
            x[threadIdx.x] = sum;
        }
        int main() { int* x = device<int>(64); k<<<4, 64>>>(x); show(x, 64); }
    """,
        mode=mode,
    )
    assert numbers(large) == [sum(i % 256 for i in range(500))] * 64
    assert not large.findings


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_recursion_without_end_is_a_stack_overflow(run: Runner, mode: Mode) -> None:
    outcome = run(
        f"""
        __device__ int deep(int* x, int n) {{ volatile int a[64]; a[n % 64] = n; return n < 0 ? 0 : deep(x, n + 1) + a[n % 64]; }}
        __global__ void k(int* x) {{ x[0] = deep(x, 0); }}
        {LAUNCH}
    """,
        mode=mode,
        timeout_s=5.0,
    )
    assert outcome.codes == {"SX404"} and outcome.status == 1


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        ("k<<<1, 0>>>(x)", "SX401"),
        ("k<<<1, 1025>>>(x)", "SX401"),
        ("k<<<dim3(1, 65536), 1>>>(x)", "SX401"),
        ("k<<<1, dim3(1, 1, 65)>>>(x)", "SX401"),
        ("k<<<1, 64, 49153>>>(x)", "SX402"),
        ("k<<<1, 64, 300000>>>(x)", "SX402"),
        ("b<<<1, 64>>>(x)", "SX403"),
        ("s<<<1, 64, 40000>>>(x)", "SX402"),
    ],
)
def test_a_launch_that_the_device_refuses_is_refused(run: Runner, launch: str, code: str) -> None:
    outcome = run(f"""
        __global__ void k(int* x) {{ x[0] = 1; }}
        __global__ void __launch_bounds__(32) b(int* x) {{ x[0] = 1; }}
        __global__ void s(int* x) {{ __shared__ char big[200000]; big[threadIdx.x] = 0; x[0] = big[0]; }}
        int main() {{ int* x = device<int>(1); {launch}; int bad = cudaGetLastError() != cudaSuccess; cudaGetLastError(); printf("%d ", bad); show(x, 1); }}
    """)
    assert outcome.codes == {code} and outcome.output.startswith("1 "), outcome


# ---- the language


@pytest.mark.full
@pytest.mark.parametrize("standard", ["c++20", "gnu++2b"])
@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_source_may_be_of_a_later_standard(tmp_path: Path, standard: str, mode: Mode) -> None:
    source = """
        #include <cooperative_groups.h>
        #include <cooperative_groups/memcpy_async.h>
        #include <cub/cub.cuh>
        #include <cuda/atomic>
        #include <cuda_bf16.h>
        #include <mma.h>
        #include <source_location>
        #include <torch/extension.h>
        template <class T> concept Small = sizeof(T) <= 4;
        __global__ void k(Small auto* x) {
            x[threadIdx.x] = __shfl_sync(0xffffffff, threadIdx.x, 5);
            if (threadIdx.x == 3) __trap();
        }
        int main() { int* x; cudaMalloc(&x, 128); k<<<1, 32>>>(x); }
    """
    box, file = runtime_library.ready(), tmp_path / "kernel.cpp"
    file.write_text(rewrite(source, "kernel.cu", library=False).text, encoding="utf-8")
    run_tool(
        [
            *box.compiler.argv,
            *box.flags(mode),
            f"-std={standard}",
            "-I",
            runtime_library.INCLUDE,
            "-include",
            "cuda_runtime.h",
            file,
            box.runtime,
            f"-Wl,-rpath,{box.folder}",
            "-o",
            tmp_path / "kernel",
        ],
        whose="own",
        timeout_s=120.0,
    )
    outcome = program.run(tmp_path / "kernel")
    assert [(finding.code, finding.line) for finding in outcome.findings] == [("SX408", 13)]


# ---- memory, in checked builds


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("x[threadIdx.x + 1] = 1;", "SX101", 2),
        ("__shared__ int s[32];\ns[threadIdx.x] = 1;", "SX103", 3),
        ("__shared__ int s[32];\nint* p = s;\np[threadIdx.x] = 1;", "SX102", 4),
        (
            "__shared__ int s[64];\nif (threadIdx.x) s[threadIdx.x] = 1;\nx[threadIdx.x] = s[threadIdx.x];",
            "SX107",
            4,
        ),
        (
            "__shared__ int s[64];\ns[threadIdx.x] = 1;\nx[threadIdx.x] = s[63 - threadIdx.x];",
            "SX201",
            4,
        ),
        ("x[threadIdx.x / 64] = threadIdx.x;", "SX202", 2),
        ("x[0] += 1;", "SX202", 2),
        ("int t = threadIdx.x;\nx[t] = t * 100000000;", "SX501", 3),
        ("x[threadIdx.x] = 1 << (threadIdx.x + 1);", "SX502", 2),
        ("*(long*)(x + threadIdx.x % 2) = 1;", "SX106", 2),
    ],
)
def test_a_memory_error_is_found_in_a_checked_build(
    run: Runner, body: str, code: str, line: int
) -> None:
    outcome = run(f"__global__ void k(int* x) {{\n{body}\n}}\n{LAUNCH}", mode="check")
    assert code in outcome.codes, [str(finding) for finding in outcome.findings]
    assert line in {finding.line for finding in outcome.findings if finding.code == code}


def test_blocks_that_write_one_word_race(run: Runner) -> None:
    outcome = run(
        """
        __global__ void k(int* x) { if (threadIdx.x == 0) x[0] = blockIdx.x; }
        int main() { int* x = device<int>(1); k<<<4, 32>>>(x); return cudaDeviceSynchronize(); }
    """,
        mode="check",
    )
    assert outcome.codes == {"SX203"}


@pytest.mark.parametrize(
    "access",
    [
        "atomicAdd(&x[n], 1)",
        "atomicAdd((float*)&x[n], 1.0f)",
        "atomicMax(&x[n], 1)",
        "atomicOr(&x[n], 1)",
        "atomicCAS(&x[n], 1, 2)",
        "atomicExch(&x[n], 1)",
        "x[0] += __ldcg(&x[n])",
        "__stcs(&x[n], 1)",
        'asm volatile("st.global.u32 [%0], %1;" :: "l"(&x[n]), "r"(1))',
    ],
)
def test_an_access_by_a_function_of_the_headers_is_at_the_line_of_its_call(
    run: Runner, access: str
) -> None:
    kernel = f"__global__ void k(int* x) {{\nint n = 64;\n{access};\n}}\n{LAUNCH}"
    outcome = run(kernel, ExecutorOptions(bounds=True), mode="check")
    assert {finding.line for finding in outcome.findings if finding.code == "SX101"} == {3}, outcome


@pytest.mark.parametrize(
    "call",
    [
        "__shfl_sync(~0u, x[n], 0)",
        "warp.shfl(x[n], 0)",
        "cg::reduce(warp, x[n], cg::plus<int>())",
        "cg::inclusive_scan(warp, x[n])",
        "cg::exclusive_scan(warp, x[n], cg::plus<int>())",
    ],
)
def test_what_a_warp_function_is_given_is_read_at_the_line_of_its_call(
    run: Runner, call: str
) -> None:
    kernel = f"""
        #include <cooperative_groups/reduce.h>
        #include <cooperative_groups/scan.h>
        namespace cg = cooperative_groups;
        __global__ void k(int* x) {{
            auto warp = cg::tiled_partition<32>(cg::this_thread_block());
            int n = 64;
            x[0] = {call};
        }}
        {LAUNCH}"""
    outcome = run(kernel, ExecutorOptions(bounds=True), mode="check")
    found = {finding.line for finding in outcome.findings if finding.code == "SX101"}
    assert found == {8}, [str(finding) for finding in outcome.findings]


def test_neighbouring_bytes_of_different_threads_do_not_race(run: Runner) -> None:
    outcome = run(
        """
        __global__ void k(char* x) { __shared__ char s[64]; s[threadIdx.x] = threadIdx.x; x[threadIdx.x] = s[threadIdx.x]; }
        int main() { char* x = device<char>(64); k<<<1, 64>>>(x); return cudaDeviceSynchronize(); }
    """,
        mode="check",
    )
    assert not outcome.findings and outcome.status == 0


def test_memory_that_an_asynchronous_copy_fills_is_in_use_until_the_wait(run: Runner) -> None:
    source = """
        #include <cooperative_groups.h>
        #include <cooperative_groups/memcpy_async.h>
        #include <cuda_pipeline.h>
        namespace cg = cooperative_groups;
        __device__ void start(int* to, const int* from) {
            __pipeline_memcpy_async(to, from, 4);  // SX201
            __pipeline_commit();
        }
        __global__ void refilled_early(int* x) {
            __shared__ int s[32];
            const int t = threadIdx.x;
            s[t] = t;
            __syncthreads();
            x[t] = s[31 - t];  // SX201
            start(&s[t], &x[32 + t]);
            __syncthreads();
            __pipeline_wait_prior(0);
        }
        __global__ void read_early(int* x) {
            __shared__ int s[3][32];
            const int t = threadIdx.x;
            s[0][t] = s[1][t] = s[2][t] = -1;
            __syncthreads();
            start(&s[0][t], &x[32 + t]);
            x[t] = s[0][t];  // SX201
            __syncthreads();
            x[t] = s[0][31 - t];  // SX201
            cg::memcpy_async(cg::this_thread_block(), s[1], &x[32], sizeof s[1]);
            cg::memcpy_async(cg::this_thread_block(), s[2], &x[64], sizeof s[2]);
            cg::wait_prior<1>(cg::this_thread_block());
            x[t] = s[0][31 - t] + s[1][31 - t];
            x[t] += s[2][31 - t];  // SX201
            cg::wait(cg::this_thread_block());
            x[t] += s[2][31 - t];
        }
        __global__ void loaded_by_all(int* x) {
            __shared__ int s[2];
            for (int i = 0; i < 4; ++i) {
                __pipeline_memcpy_async(&s[i % 2], &x[64 + i], 4);
                __pipeline_commit();
                __pipeline_wait_prior(0);
                __syncthreads();
                x[threadIdx.x] += s[i % 2];
            }
        }
        int main() {
            std::vector<int> values(128);
            for (int i = 0; i < 128; ++i) values[i] = 1000 + i;
            int* x = device<int>(128);
            cudaMemcpy(x, values.data(), 512, cudaMemcpyHostToDevice);
            refilled_early<<<1, 32>>>(x);
            read_early<<<1, 32>>>(x);
            loaded_by_all<<<1, 32>>>(x);
            return cudaDeviceSynchronize();
        }
    """
    outcome = run(source, mode="check")
    assert {(finding.code, finding.line) for finding in outcome.findings} == races_of(source)
    assert outcome.status == 0


def test_named_barriers_order_those_that_meet_and_whom_they_met_before(run: Runner) -> None:
    source = """
        __global__ void chained(int* x) {
            __shared__ int s[96], flag;
            const int t = threadIdx.x, warp = t / 32;
            s[t] = t;
            if (t == 64) flag = 0;
            __syncthreads();
            for (int i = 0; i < 300; ++i) {
                if (warp == 0) s[t] = i;
                if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
                if (warp > 0) asm volatile("bar.sync 2, 64;" ::: "memory");
                if (warp == 2) x[t] = s[t - 64] + s[(t + 1) % 32];
                asm volatile("bar.sync 5, 96;" ::: "memory");
            }
            if (warp == 0) s[t] = 7;
            if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
            if (t == 32) {
                __threadfence();
                atomicExch(&flag, 1);
            }
            if (t == 64) {
                while (atomicAdd(&flag, 0) == 0) {}
                __threadfence();
                x[t] += s[5];
            }
            if (warp == 2) {
                __syncwarp();
                x[t] += s[t - 64];
            }
        }
        __global__ void wrong(int* x) {
            __shared__ int s[96];
            const int t = threadIdx.x, warp = t / 32;
            s[t] = t;
            if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
            x[t] = s[t % 64];  // SX201
            if (warp == 1) asm volatile("bar.arrive 2, 64;" ::: "memory");
            if (warp == 0) asm volatile("bar.sync 2, 64;" ::: "memory");
            if (warp == 1) x[t] = s[t - 32];
            if (warp == 0) s[t] = 0;  // SX201
        }
        int main() {
            int* x = device<int>(128);
            chained<<<1, 96>>>(x);
            wrong<<<1, 96>>>(x);
            return cudaDeviceSynchronize();
        }
    """
    outcome = run(source, mode="check")
    assert {(finding.code, finding.line) for finding in outcome.findings} == races_of(source)
    assert outcome.status == 0


def test_of_two_warps_that_read_each_is_known_by_what_it_did_itself(run: Runner) -> None:
    source = """
        #define MEET(id) asm volatile("bar.sync " #id ", 64;" ::: "memory")
        __global__ void rounds(int* x) {
            __shared__ int s[32];
            const int t = threadIdx.x, warp = t / 32, lane = t % 32;
            if (warp == 2) return;
            if (warp == 0) s[lane] = lane;
            MEET(1);
            if (warp == 0) {  // reads first, and has done more than the other one
                for (int i = 0; i < 20; ++i) __syncwarp();
                x[t] = s[lane];
            }
            MEET(3);
            if (warp == 1) x[t] = s[lane];
            if (warp == 1) asm volatile("bar.arrive 2, 64;" ::: "memory");
            if (warp == 0) MEET(2);
            if (warp == 0) s[lane] = 7;
            MEET(1);
            if (warp == 0) x[t] += s[lane];
            MEET(3);
            if (warp == 1) x[t] += s[lane];
            if (warp == 0) asm volatile("bar.arrive 2, 64;" ::: "memory");
            if (warp == 0) x[t] += s[lane];
            if (warp == 1) MEET(2);
            if (warp == 1) s[lane] = 8;  // SX201
        }
        int main() {
            rounds<<<1, 96>>>(device<int>(96));
            return cudaDeviceSynchronize();
        }
    """
    outcome = run(source, mode="check")
    assert {(finding.code, finding.line) for finding in outcome.findings} == races_of(source)
    assert outcome.status == 0


@pytest.mark.parametrize(
    ("column", "row", "stores", "told"),
    [
        (4, -1, False, None),
        (-4, 0, False, None),
        (60, 7, True, None),
        (1, 0, False, "begins 4 bytes into a row"),
        (-4, 0, True, "is stored at coordinate -4"),
        (0, -1, True, "is stored at coordinate -1"),
    ],
)
def test_boxes_begin_where_a_gpu_lets_them_begin(
    run: Runner, column: int, row: int, stores: bool, told: str | None
) -> None:
    outcome = run(
        f"""
        #include <cuda.h>
        __global__ void copy(const __grid_constant__ CUtensorMap map) {{
            __shared__ alignas(128) float tile[16];
            __shared__ uint64_t full;
            const unsigned to = (unsigned)__cvta_generic_to_shared(tile);
            const unsigned barrier = (unsigned)__cvta_generic_to_shared(&full);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
            if ({int(stores)})
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {{%2, %3}}], [%0];"
                             ::"r"(to), "l"(&map), "r"({column}), "r"({row}) : "memory");
            else
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                             " [%0], [%1, {{%2, %3}}], [%4];"
                             ::"r"(to), "l"(&map), "r"({column}), "r"({row}), "r"(barrier) : "memory");
        }}
        int main() {{
            const cuuint64_t sizes[] = {{64, 8}}, pitch[] = {{256}};
            const cuuint32_t box[] = {{8, 2}}, steps[] = {{1, 1}};
            CUtensorMap map;
            cuTensorMapEncodeTiled(
                &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, device<float>(512), sizes, pitch, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
            copy<<<1, 1>>>(map);
            return cudaDeviceSynchronize();
        }}
    """
    )
    found = [finding for finding in outcome.findings if finding.code == "SX314"]
    assert bool(found) == bool(told), outcome.findings
    assert told is None or told in found[0].message


def test_only_kernels_may_not_write_to_constant_memory(run: Runner) -> None:
    outcome = run(
        """
        extern __constant__ float filter[4];
        struct Table { static __constant__ int steps[2]; };
        #define KEPT static __constant__
        KEPT int kept[2];
        template <class T> __constant__ T scale = 2;
        __constant__ const int fixed = 7;
        __constant__ float filter[4];
        __constant__ int Table::steps[2];
        __device__ int plain[2];
        __device__ __noinline__ int* writable(const int* p) { return const_cast<int*>(p); }
        __global__ void k(float* x) {
            *writable(plain) = fixed;
            *writable(kept) = 1;
            *writable(&Table::steps[1]) = 1;
            const_cast<float*>(filter)[3] = 1;
            x[0] = filter[1] * scale<float> + Table::steps[0] + kept[1] + plain[0];
        }
        int main() {
            const float taps[4] = {1, 2, 3, 4};
            const int steps[2] = {10, 20};
            void* at;
            cudaMemcpyToSymbol(filter, taps, sizeof taps);
            cudaGetSymbolAddress(&at, Table::steps);
            cudaMemcpy(at, steps, sizeof steps, cudaMemcpyHostToDevice);
            cudaMemcpyToSymbol(kept, steps, sizeof steps);
            float* x = device<float>(1);
            k<<<1, 1>>>(x);
            show(x, 1);
        }
    """,
        mode="check",
    )
    assert numbers(outcome) == [2 * 2 + 10 + 20 + 7]
    assert [(finding.code, finding.line) for finding in outcome.findings] == [
        ("SX111", 14),
        ("SX111", 15),
        ("SX111", 16),
    ]


#: What host code does before the last launch, and whether kernels then read what is the host's.
HOSTS = {
    "a __device__ variable": ("plain = 7;", 1),
    "through a pointer": ("int* at = &table[2]; *at = 7;", 1),
    "a variable of its own": ("*reach = 7;", 1),
    "what a copy to a symbol left": (
        "int n = 7; cudaMemcpyToSymbol(plain, &n, 4); plain = 8;",
        1,
    ),
    "a copy to a symbol": ("int n = 7; cudaMemcpyToSymbol(plain, &n, 4);", 0),
    "a symbol's address": (
        "void* at; cudaGetSymbolAddress(&at, table); cudaMemset(at, 1, sizeof table);",
        0,
    ),
    "managed memory": ("shared_by_both = 7;", 0),
    "what no kernel reads": ("unread[3] = 7; static int calls; ++calls;", 0),
    "what kernels have written over": ("counted = 7; reset<<<1, 1>>>();", 0),
}


@pytest.mark.parametrize("how", HOSTS)
def test_host_code_changes_nothing_that_a_kernel_reads(how: str, run: Runner) -> None:
    does, told = HOSTS[how]
    source = """
        __device__ int plain = 1, table[4] = {1, 2, 3, 4}, counted;
        __device__ int* where = table;
        __constant__ int fixed = 5;
        __device__ __managed__ int shared_by_both = 1;
        static int hosts = 1, unread[8];
        int* reach = &hosts;
        __global__ void reset() { counted = 0; }
        __global__ void k(int* x) {
            atomicAdd(&counted, 1);
            x[0] = plain + where[2] + fixed + shared_by_both + hosts + counted;
        }
        int main() {
            int* x = device<int>(1);
            for (int i = 0; i < 3; ++i) k<<<1, 1>>>(x);
            DOES
            k<<<1, 1>>>(x);
            return cudaDeviceSynchronize();
        }
    """
    outcome = run(source.replace("DOES", does), mode="check")
    assert [f.code for f in outcome.findings] == ["SX119"] * told, outcome


#: What host code does before a launch and behind it, and whether it may have run meanwhile.
BESIDE = {
    "nothing": ("", "", False),
    "a thread that has ended": ("std::thread([] {}).join();", "", False),
    "a thread that waits": (
        "std::mutex m; m.lock(); std::thread t([&] { m.lock(); });",
        "m.unlock(); t.join();",
        False,
    ),
    "a team that has done its work": (
        "\n#pragma omp parallel for\nfor (int i = 0; i < 64; ++i) sums[i] = i;",
        "",
        False,
    ),
    "a handler of what comes from outside": ("signal(SIGINT, [](int) {});", "", False),
    "a thread that works": (
        "std::atomic<bool> over{false}; std::thread t([&] { while (!over) ; });",
        "over = true; t.join();",
        True,
    ),
    "a thread that wakes up": (
        "std::thread t([] { std::this_thread::sleep_for(std::chrono::milliseconds(120)); });",
        "t.join();",
        True,
    ),
    "a handler of what kernels raise": ("signal(SIGFPE, [](int) {});", "", True),
}


@pytest.mark.parametrize("what", BESIDE)
def test_host_code_that_may_run_beside_a_kernel_is_told_of_where_it_is_recorded(
    what: str, run: Runner, tmp_path: Path
) -> None:
    first, then, told = BESIDE[what]
    # A thread that wakes up must do so within the first kernel, on a fast machine too.
    steps = 60_000_000 * (6 if "sleep_for" in first else 1)
    source = f"""
        #include <omp.h>
        #include <atomic>
        #include <chrono>
        #include <csignal>
        #include <mutex>
        #include <thread>
        double sums[64];
        __global__ void k(float* x) {{
            float s = 1;
            for (int i = 0; i < {steps}; ++i) s = s * 0.5f + threadIdx.x;
            x[threadIdx.x] = s;
        }}
        int main() {{
            float* x = device<float>(1);
            {first}
            k<<<1, 1>>>(x);
            {then}
            k<<<1, 1>>>(x);
            return cudaDeviceSynchronize();
        }}
    """
    outcome = run(source, ExecutorOptions(record=tmp_path / "record"))
    assert outcome.status == 0
    assert {f.code for f in outcome.findings} == ({"SX120"} if told else set()), outcome
    assert not run(source).findings, "it is not a fault"


def test_what_is_met_at_many_places_hides_nothing_that_is_met_later(run: Runner) -> None:
    barriers = "\n".join(["__syncthreads();"] * 210)
    outcome = run(
        f"""
        __global__ void many() {{
            if (threadIdx.x >= 64) return;
            {barriers}
        }}
        __global__ void racy(int* x) {{
            __shared__ int s[64];
            s[threadIdx.x] = threadIdx.x;
            x[threadIdx.x] = s[63 - threadIdx.x];
        }}
        int main() {{
            int* x = device<int>(64);
            many<<<1, 128>>>();
            racy<<<1, 64>>>(x);
            return cudaDeviceSynchronize();
        }}
    """,
        mode="check",
    )
    counts = Counter(finding.code for finding in outcome.findings)
    assert (counts["SX308"], counts["SX801"], counts["SX201"] > 0) == (200, 1, True), counts
    [told] = (finding for finding in outcome.findings if finding.code == diagnostics.CUT_OFF)
    assert diagnostics.cut_off(told) is diagnostics.CODES["SX308"]


def test_of_each_code_it_is_told_that_not_all_places_are(run: Runner) -> None:
    barriers = "\n".join(["__syncthreads();"] * 210)
    races = "\n".join(["x[0] += 1;"] * 210)
    outcome = run(
        f"""
        __global__ void many(int* x) {{
            {races}
            if (threadIdx.x >= 64) return;
            {barriers}
        }}
        int main() {{
            many<<<1, 128>>>(device<int>(1));
            return cudaDeviceSynchronize();
        }}
    """,
        mode="check",
    )
    told = {finding.message[:5] for finding in outcome.findings if finding.code == "SX801"}
    assert told == {"SX202", "SX308"}, outcome.codes


def test_no_signal_is_handled_in_a_launch_that_is_recorded(run: Runner, tmp_path: Path) -> None:
    source = """
        #include <csignal>
        #include <sys/time.h>
        volatile int ticks;
        __global__ void k(float* x, bool spins) {
            float s = 1;
            for (int i = 0; spins && i < 60000000; ++i) s = s * 0.5f + threadIdx.x;
            *x = s;
        }
        int main() {
            float* x = device<float>(1);
            k<<<1, 1>>>(x, false);
            signal(SIGALRM, [](int) { ticks = ticks + 1; });
            itimerval each = {{0, 1000}, {0, 1000}};
            setitimer(ITIMER_REAL, &each, nullptr);
            k<<<1, 1>>>(x, true);
            printf("%d\\n", ticks);
            return cudaDeviceSynchronize();
        }
    """
    assert int(run(source, ExecutorOptions(record=tmp_path / "record")).output) <= 20
    assert int(run(source).output) > 20


def test_what_host_code_keeps_for_itself_costs_launches_nothing(run: Runner) -> None:
    source = """
        static float grid[8192][8192];
        __device__ int n, large[1 << 20];
        __global__ void k() { ++n; large[n] = large[n - 1] + 1; }
        int main() {
            for (int i = 0; i < 1000; ++i) { k<<<1, 1>>>(); grid[0][i] = i; }
            int last = 0;
            cudaMemcpyFromSymbol(&last, large, 4, 4000);
            return last != 1000 || cudaDeviceSynchronize();
        }
    """
    outcome = run(source, mode="check")
    assert outcome.status == 0 and not outcome.findings, outcome


def test_addresses_that_a_linker_packs_are_not_of_host_code(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not which("ld.bfd") or runtime_library.ready().compiler.name == "zig":
        pytest.skip("the linker does not pack addresses")
    packs = ("-fuse-ld=bfd", "-Wl,-z,pack-relative-relocs")
    monkeypatch.setattr(build, "_LINKED", {"check": packs})
    source = """
        __device__ int a = 1, b = 2;
        __device__ int* row[] = {&a, &b, nullptr, &a, &b};
        __device__ struct { int* first; int gap[200]; int* last; } apart = {&a, {}, &b};
        __global__ void k(int* x) { *x = *row[0] + *row[4] + *apart.first + *apart.last; }
        int main() {
            int* x = device<int>(1);
            k<<<1, 1>>>(x);
            row[3] = &b;
            k<<<1, 1>>>(x);
            apart.last = &a;
            k<<<1, 1>>>(x);
            return cudaDeviceSynchronize();
        }
    """
    outcome = run(source, mode="check")
    assert [f.code for f in outcome.findings] == ["SX119"], outcome


def test_counters_tell_coalesced_from_strided_and_padded_from_conflicting(run: Runner) -> None:
    outcome = run(
        """
        __global__ void good(float* x) { __shared__ float s[32][33]; s[threadIdx.x][0] = 1; __syncthreads(); x[threadIdx.x] = s[31 - threadIdx.x][0]; }
        __global__ void bad(float* x) { __shared__ float s[32][32]; s[threadIdx.x][0] = 1; __syncthreads(); x[threadIdx.x * 32] = s[31 - threadIdx.x][0]; }
        int main() { float* x = device<float>(1024); good<<<1, 32>>>(x); bad<<<1, 32>>>(x); return cudaDeviceSynchronize(); }
    """,
        ExecutorOptions(counters=True),
        mode="check",
    )
    good, bad = (counter["counters"] for counter in outcome.counters)
    assert (good["transactions"], bad["transactions"]) == (4, 32)
    assert (good["shared_passes"], bad["shared_passes"]) == (2, 64)
    assert good["least_transactions"] == 4 and good["stores"] == bad["stores"] == 32
    assert good["warps"] == bad["warps"] == 1


@pytest.mark.parametrize(
    ("language", "arch"), [("cuda", "sm_90"), ("hip", "gfx942"), ("hip", "gfx1100")]
)
def test_headers_that_were_precompiled_are_taken(
    language: Language, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler reads all headers anew, and says nothing, where a flag defines what they ask
    for."""
    if not runtime_library.ready().gcc:
        pytest.skip("only g++ says which it takes")
    said = []

    def compiled(argv: Sequence[str | Path], **how: Any) -> str:
        said.append(run_tool([*argv, "-H"] if "-c" in argv else argv, **how))
        return said[-1]

    monkeypatch.setattr(build, "run_tool", compiled)
    source = tmp_path / f"k.{'hip' if language == 'hip' else 'cu'}"
    source.write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n", encoding="utf-8")
    options = build.CompileOptions(target.load(arch), language)
    build.build_program(source, tmp_path / "k", options)
    assert said[0].startswith("! ") and ".gch\n" in said[0]
