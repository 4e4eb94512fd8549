"""The device's heap, locks, barriers and partial groups in the SIMT executor, a program each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions, Mode, Order
from portkern.simt.execute.program import ProgramOutcome
from portkern.spec import target

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)

PRELUDE = """
#include <cuda_runtime.h>
#include <cub/cub.cuh>
#include <cstdio>
#define LAUNCH(call) (call, cudaDeviceSynchronize())
static int* fresh() { int* p; cudaMalloc(&p, 4096 * 4); cudaMemset(p, 0, 4096 * 4); return p; }
static void show(const int* p, int n) {
    static int host[4096];
    cudaMemcpy(host, p, n * 4, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; ++i) printf("%d ", host[i]);
}
#line 1 "kernel.cu"
"""
CHECKED = ExecutorOptions(races=True, bounds=True, uninitialised=True, alignment=True)
ORDERS: tuple[Order, ...] = ("forward", "lockstep", "reverse", "random", "priority")
WIDTHS = ("sm_90", "gfx942")

Built = Callable[..., Callable[..., ProgramOutcome]]


@pytest.fixture
def build_once(tmp_path: Path) -> Built:
    """Builds a source in a mode; what it returns runs it in an order, as one of WIDTHS."""

    def built(source: str, mode: Mode = "fast") -> Callable[..., ProgramOutcome]:
        file = tmp_path / "kernel.cu"
        file.write_text(PRELUDE + textwrap.dedent(source), encoding="utf-8")
        options = build.CompileOptions(mode=mode, target=target.load("sm_90"))
        made = build.build_program(file, tmp_path / mode, options)
        plain = CHECKED if mode == "check" else ExecutorOptions()

        def run(order: Order = "forward", at: str = "sm_90") -> ProgramOutcome:
            how = replace(plain, order=order, widen=True)
            return program.run(made, how, target=target.load(at), timeout_s=60)

        return run

    return built


def found(outcome: ProgramOutcome) -> set[tuple[str, int]]:
    return {(finding.code, finding.line) for finding in outcome.findings}


# ---- the heap

HEAP = """
    struct Pair { int a, b; __device__ Pair(int n) : a(n), b(2 * n) {} };
    __device__ int* kept;
    __global__ void in_one_launch(int* x, int n) {
        int* list = new int[n];
        for (int i = 0; i < n; ++i) list[i] = i + threadIdx.x;
        for (int i = 0; i < n; ++i) x[threadIdx.x] += list[i];
        delete[] list;
        Pair* pair = new Pair(3);
        x[threadIdx.x] += pair->b;
        delete pair;
        char* bytes = (char*)malloc(3);
        bytes[2] = 1;
        x[threadIdx.x] += bytes[2];
        free(bytes);
        free(nullptr);
    }
    __global__ void first() { kept = new int[4]; for (int i = 0; i < 4; ++i) kept[i] = i; }
    __global__ void second(int* x) { x[threadIdx.x] = kept[threadIdx.x]; }
    __global__ void third() { delete[] kept; }
    __global__ void fill(int* x) {
        while (malloc(1 << 16)) *x += 1;
        x[1] = new char[1 << 20] == nullptr;
    }
    int main() {
        int* x = fresh();
        in_one_launch<<<1, 64>>>(x, 5);
        show(x, 2);
        first<<<1, 1>>>(); second<<<1, 4>>>(x); third<<<1, 1>>>();
        show(x, 4);
        int* y = fresh();
        cudaMemset(y, 0, 8);
        fill<<<1, 1>>>(y);
        show(y, 2);
        printf("%d", cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20) == cudaErrorInvalidValue);
        return 0;
    }
"""


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_kernels_have_a_heap_that_outlives_launches(build_once: Built, mode: Mode) -> None:
    run = build_once(HEAP, mode)
    for at in WIDTHS:
        outcome = run(at=at)
        assert outcome.output == "17 22 0 1 2 3 128 1 1", outcome
        assert not outcome.errors


HEAP_DEFECTS = """
    __global__ void k(int* x) {
        char* p = (char*)malloc(10);
        p[10] = 1;
        x[0] = p[3];
        free(p);
        x[1] = p[2];
        free(p);
        free(x);
        int* leaked = new int[3];
        leaked[0] = 1;
    }
    int main() {
        int* x = fresh();
        LAUNCH((k<<<1, 1>>>(x)));
        return 0;
    }
"""


def test_misuse_of_the_heap_is_named_by_its_line(build_once: Built) -> None:
    outcome = build_once(HEAP_DEFECTS, "check")()
    expected = {("SX101", 4), ("SX108", 5), ("SX110", 6), ("SX105", 7), ("SX113", 8), ("SX113", 9)}
    assert found(outcome) == expected | {("SX117", 10)}, outcome
    assert str(next(f for f in outcome.findings if f.code == "SX117").severity) == "note"


def test_a_block_of_the_heap_is_another_threads_when_it_was_freed(build_once: Built) -> None:
    run = build_once(
        """
        __global__ void k(int* x) {
            for (int i = 0; i < 200; ++i) {
                int* p = (int*)malloc(50000);
                if (!p) continue;
                p[0] = p[12499] = i;
                atomicAdd(x, p[0] == i);
                free(p);
            }
        }
        int main() { int* x = fresh(); k<<<2, 2>>>(x); show(x, 1); return 0; }
        """,
        "check",
    )
    outcome = run("random")
    assert outcome.output == "800 " and not outcome.findings, outcome


# ---- locks

LOCKS = """
    __global__ void in_the_loop(int* lock, int* x) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) {
                __threadfence();
                x[0] = x[0] + 1;
                x[1] = x[1] + 2;
                done = true;
                __threadfence();
                atomicExch(lock, 0);
            }
        }
    }
    __global__ void of_the_block(int* x) {
        __shared__ int lock, total;
        if (threadIdx.x == 0) lock = total = 0;
        __syncthreads();
        for (bool done = false; !done;) {
            if (atomicExch(&lock, 1) == 0) {
                __threadfence_block();
                total = total + 1;
                __threadfence_block();
                atomicExch(&lock, 0);
                done = true;
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(x, total);
    }
    __device__ float sum(float* at, float by) {
        int* word = (int*)at;
        int old = *word, assumed;
        do {
            assumed = old;
            old = atomicCAS(word, assumed, __float_as_int(__int_as_float(assumed) + by));
        } while (assumed != old);
        return __int_as_float(old);
    }
    __global__ void lock_free(float* x) { sum(x, 1.0f); }
    __global__ void first_lane(int* lock, int* x) {
        if (threadIdx.x % warpSize == 0) {
            while (atomicCAS(lock, 0, 1) != 0) {}
            __threadfence();
            x[0] = x[0] + 1;
            __threadfence();
            atomicExch(lock, 0);
        }
        __syncthreads();
    }
    int main() {
        int* x = fresh();
        in_the_loop<<<3, 96>>>(x, x + 1);
        show(x, 2);
        of_the_block<<<3, 96>>>(x + 3);
        show(x + 3, 1);
        float* f = (float*)(x + 4);
        lock_free<<<3, 96>>>(f);
        float h; cudaMemcpy(&h, f, 4, cudaMemcpyDeviceToHost);
        printf("%g ", h);
        first_lane<<<3, 128>>>(x + 5, x + 6);
        show(x + 6, 1);
        return 0;
    }
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_lock_that_is_given_back_in_its_loop_is_right_in_every_order(
    build_once: Built, mode: Mode
) -> None:
    run = build_once(LOCKS, mode)
    for order in ORDERS:
        for at, warps in zip(WIDTHS, (12, 6), strict=True):
            outcome = run(order, at)
            assert outcome.output == f"0 288 288 288 {warps} ", (order, at, outcome)
            assert not outcome.findings


WITHIN_A_WAVE = """
    __global__ void k(int* lock, int* x) {
        while (atomicCAS(lock, 0, 1) != 0)
            ;
        __threadfence();
        x[0] = x[0] + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
    int main() {
        int* x = fresh();
        k<<<2, 64>>>(x, x + 1);
        printf("%d ", cudaDeviceSynchronize() == cudaSuccess);
        show(x + 1, 1);
        return 0;
    }
"""


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_lock_taken_by_lanes_of_one_wave_is_reported_where_waves_run_in_lock_step(
    build_once: Built, mode: Mode
) -> None:
    run = build_once(WITHIN_A_WAVE, mode)
    for order in ORDERS:
        assert run(order, "sm_90").output == "1 128 "
        outcome = run(order, "gfx942")
        assert found(outcome) == {("SX312", 3)}, outcome
        assert outcome.output.startswith("0 ")


def test_a_thread_that_polls_a_volatile_flag_gives_way(build_once: Built) -> None:
    run = build_once("""
        __global__ void k(volatile int* flag, int* x) {
            if (threadIdx.x / 64 == 0) { while (*flag == 0); *x = 7; }
            else if (threadIdx.x == 64) { __threadfence(); *flag = 1; }
        }
        int main() { int* x = fresh(); k<<<1, 128>>>(x, x + 1); show(x, 2); return 0; }
    """)
    for order in ORDERS:
        assert run(order, "gfx942").output == "1 7 ", order


# ---- barriers

BARRIERS = """
    __global__ void by_warps(int* x) {
        if (threadIdx.x < 64)
            __syncthreads();
        else
            __syncthreads();
        x[threadIdx.x] = 1;
    }
    __global__ void by_lanes(int* x) {
        if (threadIdx.x % 2)
            __syncthreads();
        else
            __syncthreads();
        x[threadIdx.x] = 1;
    }
    int main(int argc, char**) {
        int* x = fresh();
        by_warps<<<1, 128>>>(x);
        by_lanes<<<1, 128>>>(x);
        show(x + 127, 1);
        return 0;
    }
"""


def test_whole_warps_may_meet_at_two_barriers_and_lanes_of_one_may_not(build_once: Built) -> None:
    run = build_once(BARRIERS)
    for at in WIDTHS:
        outcome = run(at=at)
        assert outcome.output == "1 "
        assert {f.code: str(f.severity) for f in outcome.findings} == {
            "SX311": "warning",
            "SX301": "error",
        }
        assert {f.line for f in outcome.findings if f.code == "SX301"} <= {11, 13}


# ---- groups that are not whole

PARTIAL = """
    __global__ void block_reduce(int* x, int n) {
        using Reduce = cub::BlockReduce<int, 1024>;
        __shared__ typename Reduce::TempStorage storage;
        int sum = Reduce(storage).Sum(threadIdx.x + 1, n);
        if (threadIdx.x == 0) x[0] = sum;
        __syncthreads();
        int top = Reduce(storage).Reduce((int)threadIdx.x, cub::Max(), n);
        if (threadIdx.x == 0) x[1] = top;
    }
    __global__ void warp_reduce(int* x, int n) {
        using Reduce = cub::WarpReduce<int>;
        __shared__ typename Reduce::TempStorage storage[32];
        const int warp = threadIdx.x / warpSize, first = warp * warpSize;
        int sum = Reduce(storage[warp]).Sum(1, min(warpSize, n - first));
        if (threadIdx.x == first) atomicAdd(x, sum);
    }
    __global__ void warp_scan(int* x) {
        using Scan = cub::WarpScan<int, 32>;
        __shared__ typename Scan::TempStorage storage[32];
        int before;
        Scan(storage[threadIdx.x / 32]).ExclusiveSum(1, before);
        x[threadIdx.x] = before;
    }
    __global__ void guarded(const int* from, int* to, int n) {
        using Load = cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
        using Scan = cub::BlockScan<int, 64>;
        using Store = cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
        __shared__ union {
            Load::TempStorage load; Scan::TempStorage scan; Store::TempStorage store;
        } s;
        int items[4];
        Load(s.load).Load(from, items, n, 0);
        __syncthreads();
        Scan(s.scan).InclusiveSum(items, items);
        __syncthreads();
        Store(s.store).Store(to, items, n);
    }
    __global__ void whole(int* x) {
        using Reduce = cub::WarpReduce<int>;
        __shared__ typename Reduce::TempStorage storage[32];
        int sum = Reduce(storage[threadIdx.x / warpSize]).Sum(1);
        if (threadIdx.x == 0) x[0] = sum;
    }
    __global__ void ones(int* x) { x[threadIdx.x] = 1; }
    int main() {
        int* x = fresh(); int* y = fresh();
        block_reduce<<<1, 100>>>(x, 100); show(x, 2);
        block_reduce<<<1, 100>>>(x, 7); show(x, 2);
        warp_reduce<<<1, 100>>>(x + 2, 100); show(x + 2, 1);
        warp_scan<<<1, 40>>>(x); show(x + 38, 2);
        ones<<<1, 200>>>(x);
        guarded<<<1, 64>>>(x, y, 150); show(y + 148, 3);
#ifdef WHOLE
        whole<<<1, 20>>>(x);
#endif
        return 0;
    }
"""


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_collectives_of_fewer_items_than_lanes_are_not_findings(
    build_once: Built, mode: Mode
) -> None:
    run = build_once(PARTIAL, mode)
    for at in WIDTHS:
        outcome = run(at=at)
        assert outcome.output == "5050 99 28 6 100 6 7 149 150 0 ", (at, outcome)
        assert not outcome.findings


def test_a_collective_that_needs_a_lane_that_is_not_there_is_a_finding(build_once: Built) -> None:
    outcome = build_once("#define WHOLE\n" + textwrap.dedent(PARTIAL))()
    assert {finding.code for finding in outcome.findings} == {"SX306"}


# ---- limits

BOUNDS = """
    #define LIMIT __launch_bounds__(32)
    __global__ void
    #if defined(WIDE)
    __launch_bounds__(1024)
    #else
    __launch_bounds__(64)
    #endif
    chosen(int* x) { x[threadIdx.x] = 1; }
    __global__ void LIMIT named(int* x) { x[threadIdx.x] = 1; }
    int main() {
        int* x = fresh();
        chosen<<<1, 64>>>(x);
        named<<<1, 32>>>(x);
        printf("%d", cudaGetLastError());
        chosen<<<1, 96>>>(x);
        printf(" %d", cudaGetLastError());
        return 0;
    }
"""


def test_launch_bounds_in_a_conditional_head_hold(build_once: Built) -> None:
    outcome = build_once(BOUNDS)()
    assert (outcome.output, {f.code for f in outcome.findings}) == ("0 701", {"SX403"})
    named = BOUNDS.replace("chosen<<<1, 96>>>", "named<<<1, 96>>>")
    assert "SX403" in build_once(named)().codes


# ---- loops of shuffles

FOLDS = """
    __global__ void folds(int* x, float* f, int n, unsigned mask) {
        const int t = threadIdx.x, lane = t % 32, half = lane / 16;
        int v = t + 1, top = (t * 37) % 101, part = t, up = 1, odd = t;
        #pragma unroll
        for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d, 32);
        for (int offset = 16; offset > 0; offset >>= 1) {
            int other = __shfl_down_sync(0xffffffff, top, offset, 32);
            top = max(top, other);
        }
        for (int d = 1; d < n; d *= 2) part += __shfl_xor_sync(~0u, part, d, 32);
        if (lane < n)
            for (int d = 1; d < n; d *= 2) up += __shfl_up_sync(mask, up, d, n) * (lane >= d);
        else up = -1;
        for (int d = 1; d < 8; d *= 2) odd += __shfl_xor_sync(~0u, odd, d + half, 32);
        float mean = t, weight = 1;
        for (unsigned d = 16; d; d >>= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, mean, d, 32);
            mean = (mean + other) * 0.5f * weight;
        }
        const int all[5] = {v, top, part, up, odd};
        for (int i = 0; i < 5; ++i) x[t * 5 + i] = all[i];
        f[t] = mean;
    }
    int main() {
        int* x = fresh();
        float* f = (float*)(x + 2048);
        folds<<<1, 64>>>(x, f, 8, 0xff);
        show(x, 64 * 5);
        float host[64];
        cudaMemcpy(host, f, sizeof host, cudaMemcpyDeviceToHost);
        for (float h : host) printf("%g ", h);
        return 0;
    }
"""


def test_a_fold_by_shuffles_is_the_same_at_once_and_step_by_step(build_once: Built) -> None:
    at_once = build_once(FOLDS)().output.split()
    assert len(at_once) == 64 * 6
    assert at_once == build_once(FOLDS, "check")().output.split()
    assert [int(word) for word in at_once[:4]] == [528, 100, 28, 1]
    assert at_once[-1] == "47.5"


# ---- more blocks that wait than there is memory for

MANY = """
    #include <sys/resource.h>
    __global__ void count(int* x, int* y) {  // adding 0 is how a thread polls
        int sum = 0;
        for (int i = blockIdx.x * 256 + threadIdx.x; i < 1024; i += 256 * gridDim.x) sum += x[i];
        atomicAdd(y, sum);
        if (threadIdx.x == 0) y[1 + blockIdx.x] = 1;
    }
    int main() {
        int* y = fresh();
        count<<<1, 256>>>(fresh(), y);  // what the runtime keeps is there before the limit
        long pages = 0;
        FILE* statm = fopen("/proc/self/statm", "r");
        if (fscanf(statm, "%ld", &pages) != 1) return 3;
        fclose(statm);
        rlimit limit = {pages * 4096ul + (1ul << 29), RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit)) return 4;
        count<<<128, 256>>>(fresh(), y);
        show(y, 129);
        return cudaDeviceSynchronize() != cudaSuccess;
    }
"""


@pytest.mark.parametrize("at", WIDTHS)
def test_blocks_that_have_no_stacks_begin_when_others_have_ended(
    build_once: Built, at: str
) -> None:
    outcome = build_once(MANY, "check")("forward", at)
    assert not outcome.findings
    assert (outcome.status, outcome.output.split()) == (0, ["0", *["1"] * 128])
