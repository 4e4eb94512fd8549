#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// partials per warp by warpSize, read by 32 threads whatever their number
__global__ void partials(const float* x, float* out, int n) {
    __shared__ float s[32];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
    for (int o = warpSize / 2; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % warpSize == 0) s[threadIdx.x / warpSize] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        float w = s[threadIdx.x];
        for (int o = 16; o > 0; o /= 2) w += __shfl_down_sync(0xffffffff, w, o);
        if (threadIdx.x == 0) out[blockIdx.x] = w;
    }
}
// a producer warp and a consumer warp of what becomes one wave
__global__ void produced(const float* x, float* out) {
    __shared__ volatile float box;
    __shared__ volatile int full;
    if (threadIdx.x == 0) full = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 31) { box = x[blockIdx.x] * 2; __threadfence_block(); full = 1; }
    } else {
        while (full == 0) { }
        out[blockIdx.x * 32 + threadIdx.x - 32] = box;
    }
}
// data laid out by the width of the warp
__global__ void interleaved(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % warpSize, warp = i / warpSize;
    if (i < n) y[warp * warpSize + (lane / 2 + (lane % 2) * (warpSize / 2))] = x[i];
}
// how many threads of the warp are here
__global__ void crowd(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) out[i] = __popc(__activemask());
}
// a shift by the lane
__global__ void bits(const int* x, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & (warpSize - 1);
    unsigned bit = i < n && x[i] > 0 ? 1u << lane : 0;
    for (int o = warpSize / 2; o > 0; o /= 2) bit |= __shfl_xor_sync(0xffffffff, bit, o);
    if (lane == 0) out[i / 32] = bit;
}
// rounds that a warp takes together are counted
__global__ void rounds(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int left = i < n ? x[i] & 7 : 0, count = 0;
    while (__any_sync(0xffffffff, left > 0)) { left--; count++; }
    if (i < n) out[i] = count;
}
// a partial barrier of two warps
__global__ void halves(const float* x, float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    int group = threadIdx.x / 64;
    asm volatile("bar.sync %0, 64;" :: "r"(group + 1));
    y[threadIdx.x] = s[threadIdx.x ^ 63];
}
// the number of warps decides what the host allocates
__global__ void per_warp(const float* x, float* y, int n) {
    extern __shared__ float s[];
    int warp = threadIdx.x / 32;
    if (threadIdx.x % warpSize == 0) s[warp] = 0;
    __syncthreads();
    atomicAdd(&s[warp], threadIdx.x < n ? x[threadIdx.x] : 0.0f);
    __syncthreads();
    if (threadIdx.x % 32 == 0) y[warp] = s[warp];
}
// the size of a coalesced group
__global__ void coalesced(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (x[i] & 1)) {
        cg::coalesced_group g = cg::coalesced_threads();
        y[i] = g.thread_rank() * 100 + g.size();
    }
}
// a shift by more bits than there are: 0 on NVIDIA, modulo 32 on AMD
__global__ void shifted(unsigned* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1u << i;
}
// a warp's prefix whose carry is the 31st lane of the block's waves
__global__ void carried(const int* x, int* y, int n) {
    __shared__ int last[32];
    int i = threadIdx.x, lane = i % warpSize, v = i < n ? x[i] : 0;
    for (int o = 1; o < warpSize; o *= 2) {
        int other = __shfl_up_sync(0xffffffff, v, o);
        if (lane >= o) v += other;
    }
    if (lane == 31) last[i / 32] = v;
    __syncthreads();
    int before = 0;
    for (int w = 0; w < i / 32; ++w) before += last[w];
    if (i < n) y[i] = v + before;
}
void launch(float* x, float* out, int* k, int* l, unsigned* u, int n) {
    partials<<<4, 1024>>>(x, out, n);
    produced<<<4, 64>>>(x, out);
    interleaved<<<4, 256>>>(x, out, n);
    crowd<<<4, 256>>>(x, l, n);
    bits<<<4, 256>>>(k, u, n);
    rounds<<<4, 256>>>(k, l, n);
    halves<<<1, 128>>>(x, out);
    per_warp<<<1, 256, 8 * sizeof(float)>>>(x, out, n);
    coalesced<<<4, 256>>>(k, l, n);
    carried<<<1, 256>>>(k, l, n);
    shifted<<<1, 64>>>(u, n);
}
