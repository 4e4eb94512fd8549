"""CUDA programs that print what warps compute, for the tests of the translation to HIP."""

_MAIN = """
template <class K> void go(const char* name, K kernel) {
  for (int threads : {32, 64, 96, 256}) {
    std::vector<float> x(LENGTH), y(LENGTH, -1.0f);
    for (int i = 0; i < LENGTH; i++) x[i] = (float)((i * 7919 + 13) % 101 - 50);
    float *dx, *dy;
    CHECK(cudaMalloc(&dx, LENGTH * sizeof(float)));
    CHECK(cudaMalloc(&dy, LENGTH * sizeof(float)));
    CHECK(cudaMemcpy(dx, x.data(), LENGTH * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dy, y.data(), LENGTH * sizeof(float), cudaMemcpyHostToDevice));
    LAUNCH(kernel, 2, threads, dx, dy);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(y.data(), dy, LENGTH * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (int i = 0; i < LENGTH; i++) sum += y[i] * (i % 37 + 1);
    printf("%s %d %.6g\\n", name, threads, sum);
    cudaFree(dx);
    cudaFree(dy);
  }
}
"""

#: Every kernel takes a warp for 32 lanes, most of them in a way that fails on a wave of 64.
_WARPS = r"""
__device__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(FULL_MASK, v, o);
  return v;
}
__global__ void __launch_bounds__(256, 2) block_sum(const float* x, float* y) {
  __shared__ float s[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float v = warp_sum(x[AT]);
  if (lane == 0) s[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < (blockDim.x + 31) / 32 ? s[lane] : 0.0f;
    v = warp_sum(v);
    if (lane == 0) y[blockIdx.x] = v;
  }
}
__global__ void compact(const float* x, float* y) {
  int lane = threadIdx.x % 32, warp = AT / 32;
  bool keep = x[AT] > 0;
  unsigned m = __ballot_sync(0xffffffff, keep);
  int at = __popc(m & ((1u << lane) - 1));
  if (keep) y[warp * 32 + at] = x[AT];
  if (lane == 0) y[768 + warp] = __ffs(m) + 100 * __clz(m) + __popc(__brev(m) & 0xffff);
}
__global__ void scan(const float* x, float* y) {
  int lane = threadIdx.x % warpSize;
  float v = x[AT];
  for (int d = 1; d < 32; d *= 2) {
    float w = __shfl_up_sync(0xffffffff, v, d);
    if (lane >= d) v += w;
  }
  y[AT] = v + __shfl_sync(0xffffffff, v, 31) + __shfl_sync(-1, v, (lane + 1) & 31);
}
__device__ int counter;
__global__ void aggregate(const float* x, float* y) {
  int lane = threadIdx.x & 31;
  if (x[AT] > 10) {
    unsigned active = __activemask();
    int leader = __ffs(active) - 1, rank = __popc(active & ((1u << lane) - 1)), base = 0;
    if (lane == leader) base = AT / 32 * 32;
    base = __shfl_sync(active, base, leader);
    y[base + rank] = __popc(active);
    __syncwarp(active);
  }
}
__global__ void votes(const float* x, float* y) {
  float v = x[AT] + threadIdx.x / 32 * 20;
  int n = 0;
  while (!__all_sync(~0u, v > 60)) { v += 9; n++; }
  while (__any_sync(0xffffffff, v > 50)) { v -= 7; n++; }
  y[AT] = n;
  if (threadIdx.x % 32 < 7) {
    y[AT] += __all_sync(0x7f, x[AT] > -45) + 2 * __any_sync(0x7fu, x[AT] > 45);
  }
}
__global__ void matches(const float* x, float* y) {
  int v = (int)x[AT] & 3, all;
  unsigned same = __match_any_sync(FULL_MASK, v);
  unsigned alike = __match_all_sync(FULL_MASK, threadIdx.x / 64, &all);
  int sum = __reduce_add_sync(FULL_MASK, v);
  y[AT] = same % 1021 + all + alike % 511 + sum;
}
__global__ void halves(const float* x, float* y) {
  int lane = threadIdx.x & 31;
  unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  float v = x[AT];
  if (lane < 16) v += __shfl_xor_sync(half, v, 8); else v -= __shfl_xor_sync(half, v, 4, 8);
  __syncwarp();
  y[AT] = v + __ballot_sync(FULL_MASK, v > 0) % 97u;
}
__global__ void ptx(const float* __restrict__ x, float* y) {
  unsigned lane, below;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  float a, b, d;
  asm("ld.global.nc.f32 %0, [%1];" : "=f"(a) : "l"(x + AT));
  asm("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(b), "=f"(d) : "l"(x + AT / 2 * 2));
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(d));
  __stcs(y + AT, __ldcs(x + AT) + d + lane + __popc(below));
  float4 four = __ldcg((const float4*)x);
  y[AT] += four.z;
}
__global__ void constant(const float* x, float* y, const __grid_constant__ int one);
"""

_HEAD = r"""
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>
#define FULL_MASK 0xffffffffu
#define LENGTH 1024
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
  printf("%s\n", cudaGetErrorString(e)); return; } } while (0)
#define LAUNCH(k, blocks, threads, ...) \
  k<<<blocks, threads>>>(__VA_ARGS__)
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

"""

_GROUPS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;
struct Largest { float value; int at; };
__device__ Largest larger(Largest a, Largest b) {
  return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
}
__global__ void groups(const float* x, float* y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(tile, x[AT], cg::plus<float>{});
  float top = cg::reduce(tile, x[AT], cg::greater<float>());
  Largest best = cg::reduce(tile, Largest{x[AT], (int)threadIdx.x}, larger);
  y[AT] = sum + top * 3 + best.at;
}
__global__ void library(const float* x, float* y) {
  typedef cub::WarpReduce<float> Reduce;
  __shared__ typename Reduce::TempStorage storage[8];
  float sum = Reduce(storage[threadIdx.x / 32]).Sum(x[AT]);
  if (threadIdx.x % 32 == 0) y[AT] = sum;
}
"""

#: What needs no header but those of HIP itself.
DEVICE = _HEAD + _WARPS

LOGICAL = (
    _HEAD
    + _GROUPS
    + _WARPS
    + _MAIN
    + r"""
__global__ void newer(const float* x, float* y) {
#if __CUDA_ARCH__ >= 700 || !defined(__CUDA_ARCH__)
  y[AT] = x[AT] + 1;
#else
  y[AT] = x[AT] + 2;
#endif
}
int main() {
  go("block_sum", block_sum); go("compact", compact); go("scan", scan);
  go("aggregate", aggregate); go("votes", votes); go("matches", matches);
  go("halves", halves); go("groups", groups); go("library", library); go("newer", newer);
  go("ptx", ptx);
  return 0;
}
"""
)

#: Takes all it knows of warps from warpSize.
ANY_WIDTH = (
    r"""
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>
#define LENGTH 1024
#define CHECK(call) do { if ((call) != cudaSuccess) return; } while (0)
#define LAUNCH(k, blocks, threads, ...) k<<<blocks, threads>>>(__VA_ARGS__)

__global__ void block_sum(const float* x, float* y) {
  __shared__ float s[32];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int o = warpSize / 2; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
  if (lane == 0) s[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < (blockDim.x + warpSize - 1) / warpSize ? s[lane] : 0.0f;
    for (int o = warpSize / 2; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (lane == 0) y[blockIdx.x] = v;
  }
}
"""
    + _MAIN.replace("{32, 64, 96, 256}", "{64, 128, 256}")
    + 'int main() { go("block_sum", block_sum); return 0; }\n'
)
