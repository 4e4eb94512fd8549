"""Measures what the SIMT executor costs, beside a plain C++ loop on the same machine, in the same
run.

    python benchmarks/simt_speed.py [out=benchmarks/results/simt-speed.json]

Figures are medians of ROUNDS rounds in which the executor and the loop take turns, in processor
time; only what two threads bring, and a build, is by the clock on the wall. What runs beside it
shows there, and a little in the others, by the caches. `checked` are those of a build that looks
for races and for accesses out of bounds, as `portkern check` does unless told otherwise; the loop
beside it is the plain one.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.spec import target
from portkern.toolchain import host

ROUNDS = 7
SOURCE = r"""
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

static double now() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static double wall() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static double median(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

__global__ void barriers(int* x, int n) { for (int i = 0; i < n; ++i) __syncthreads(); x[threadIdx.x] = 1; }
__global__ void shuffles(float* x, int n) {
    float v = threadIdx.x;
    for (int i = 0; i < n; ++i) v = __shfl_xor_sync(~0u, v, 1 + i % 31);
    x[threadIdx.x] = v;
}
__global__ void nothing(int* x) { if (x == nullptr) __builtin_trap(); }
__global__ void vadd(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float s[32][32], t[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        s[y][x] = a[row * n + k + x];
        t[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum += s[y][i] * t[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
__device__ float reduce(float v, bool add) {
    __shared__ float part[32];
    for (int d = 16; d; d /= 2) { float o = __shfl_xor_sync(~0u, v, d); v = add ? v + o : fmaxf(v, o); }
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < (int)blockDim.x / 32; ++w) v = add ? v + part[w] : fmaxf(v, part[w]);
    return v;
}
__global__ void softmax(const float* x, float* y, int n) {
    const float* in = x + blockIdx.x * n;
    float top = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, in[i]);
    top = reduce(top, false);
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(in[i] - top);
    sum = reduce(sum, true);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = expf(in[i] - top) / sum;
}
__global__ void sums(const float* x, float* y) {
    __shared__ float part[32];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}

static void loop_vadd(const float* a, const float* b, float* c, int n) { for (int i = 0; i < n; ++i) c[i] = a[i] + b[i]; }
static void loop_matmul(const float* a, const float* b, float* c, int n) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            float s = 0;
            for (int k = 0; k < n; ++k) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
static void loop_sums(const float* x, float* y, int rows, int n) {
    for (int r = 0; r < rows; ++r, x += n) {
        float s = 0;
        for (int i = 0; i < n; ++i) s += x[i];
        y[r] = s;
    }
}
static void loop_softmax(const float* x, float* y, int rows, int n) {
    for (int r = 0; r < rows; ++r, x += n, y += n) {
        float top = -INFINITY, sum = 0;
        for (int i = 0; i < n; ++i) top = fmaxf(top, x[i]);
        for (int i = 0; i < n; ++i) sum += expf(x[i] - top);
        for (int i = 0; i < n; ++i) y[i] = expf(x[i] - top) / sum;
    }
}

template <class A, class B> void race(const char* name, A emulated, B loop) {
    std::vector<double> e, l, w;
    emulated(); loop();
    for (int r = 0; r < ROUNDS; ++r) {
        double start = wall(), t = now();
        emulated();
        e.push_back(now() - t); w.push_back(wall() - start);
        t = now(); loop(); l.push_back(now() - t);
    }
    printf("%s %.6g %.6g %.6g\n", name, median(e) * 1e3, median(l) * 1e3, median(w) * 1e3);
}
template <class F> void per(const char* name, double count, F f) {
    std::vector<double> v;
    f();
    for (int r = 0; r < ROUNDS; ++r) { double t = now(); f(); v.push_back(now() - t); }
    printf("%s %.6g 0 0\n", name, median(v) / count * 1e9);
}
int main() {
    const int n = 1 << 20;
    float *a, *b, *c;
    cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4); cudaMalloc(&c, n * 4);
    std::vector<float> h(n);
    for (int i = 0; i < n; ++i) h[i] = (i * 37 % 101) * 0.01f;
    cudaMemcpy(a, h.data(), n * 4, cudaMemcpyHostToDevice); cudaMemcpy(b, h.data(), n * 4, cudaMemcpyHostToDevice);
    std::vector<float> x(h), y(h), z(n);
    for (int t : {32, 256, 1024}) {
        char name[32];
        snprintf(name, sizeof name, "barrier_%d_ns", t);
        per(name, 2000.0 * t, [&] { barriers<<<1, t>>>((int*)c, 2000); });
        snprintf(name, sizeof name, "shuffle_%d_ns", t);
        per(name, 2000.0 * t, [&] { shuffles<<<1, t>>>(c, 2000); });
    }
    per("thread_ns", n, [&] { nothing<<<n / 256, 256>>>((int*)c); });
    race("vadd_1m", [&] { vadd<<<n / 256, 256>>>(a, b, c, n); }, [&] { loop_vadd(x.data(), y.data(), z.data(), n); asm volatile("" ::: "memory"); });
    race("matmul_256", [&] { matmul<<<dim3(8, 8), dim3(32, 32)>>>(a, b, c, 256); }, [&] { loop_matmul(x.data(), y.data(), z.data(), 256); asm volatile("" ::: "memory"); });
    race("softmax_256x1024", [&] { softmax<<<256, 256>>>(a, c, 1024); }, [&] { loop_softmax(x.data(), z.data(), 256, 1024); asm volatile("" ::: "memory"); });
    race("softmax_1024_threads", [&] { softmax<<<256, 1024>>>(a, c, 1024); }, [&] { loop_softmax(x.data(), z.data(), 256, 1024); asm volatile("" ::: "memory"); });
    race("softmax_1024_threads_of_8", [&] { softmax<<<32, 1024>>>(a, c, 8192); }, [&] { loop_softmax(x.data(), z.data(), 32, 8192); asm volatile("" ::: "memory"); });
    race("sums_1024_threads", [&] { sums<<<256, 1024>>>(a, c); }, [&] { loop_sums(x.data(), z.data(), 256, 1024); asm volatile("" ::: "memory"); });
}
"""  # noqa: E501
ONE = """
#include <cuda_runtime.h>
__global__ void kernel_{n}(const float* x, float* y, int n) {{
    __shared__ float s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) s[threadIdx.x] = x[i] * {n}.0f;
    __syncthreads();
    if (i < n) y[i] = s[threadIdx.x];
}}
extern "C" int run_{n}(const float* x, float* y, int n) {{
    kernel_{n}<<<(n + 63) / 64, 64>>>(x, y, n);
    return (int)cudaGetLastError();
}}
"""


def figures(text: str) -> dict[str, tuple[float, float, float]]:
    """Figures by name: processor time of the executor and of the loop, wall time of the
    executor."""
    rows = (line.split() for line in text.splitlines())
    return {name: (float(own), float(loop), float(wall)) for name, own, loop, wall in rows}


def run_kernels(folder: Path) -> dict[str, float]:
    source = folder / "speed.cu"
    source.write_text(SOURCE, encoding="utf-8")
    define = [f"ROUNDS={ROUNDS}"]
    fast = build.build_program(source, folder / "fast", build.CompileOptions(defines=define))
    check = build.build_program(
        source, folder / "check", build.CompileOptions(mode="check", defines=define)
    )
    alone = figures(program.run(fast, ExecutorOptions(limit_s=60)).output)
    both = figures(program.run(fast, ExecutorOptions(limit_s=60, workers=2)).output)
    looked = ExecutorOptions(limit_s=60, races=True, bounds=True)
    checked = figures(program.run(check, looked, timeout_s=300).output)
    found = {name: value for name, (value, loop, _) in alone.items() if not loop}
    for name, (ms, loop, wall_ms) in alone.items():
        if loop:
            found[f"{name}_over_loop"] = ms / loop
            found[f"{name}_two_threads"] = wall_ms / both[name][2]
            found[f"{name}_checked_over_loop"] = checked[name][0] / loop
    # Three accesses of memory in each thread; what else the callbacks see is counted with them.
    found["checked_access_ns"] = checked["vadd_1m"][0] * 1e6 / (3 << 20)
    return found


def build_kernels(folder: Path, count: int = 100) -> dict[str, float]:
    where = target.load("sm_90")

    def one(number: int) -> None:
        work = folder / str(number)
        work.mkdir()
        text = ONE.format(n=number)
        build.build_library(build.ProgramSource(text, f"k{number}.cu", "cuda"), where, "fast", work)

    one(count)  # the runtime and the precompiled header
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    own = time.process_time()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(count)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu += time.process_time() - own
    return {"build_100_s": time.perf_counter() - start, "build_cpu_s": cpu / count}


def main() -> int:
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    out = Path(options.get("out", "benchmarks/results/simt-speed.json"))
    box = runtime_library.ready()
    with tempfile.TemporaryDirectory() as folder:
        measured = build_kernels(Path(folder)) | run_kernels(Path(folder))
    load = statistics.mean(os.getloadavg()[:1])
    document: dict[str, Any] = {
        "machine": {
            "cpu": host.cpu_name(),
            "cores": os.cpu_count(),
            "compiler": box.compiler.version,
            "load": round(load, 2),
        },
        "figures": {name: float(f"{value:.4g}") for name, value in sorted(measured.items())},
    }
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, value in document["figures"].items():
        print(f"{name:32} {value:g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
