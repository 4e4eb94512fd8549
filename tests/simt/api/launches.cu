// Launches by every name, and what is left of those that fail.
#include <cooperative_groups.h>

#include "expect.h"

namespace cg = cooperative_groups;

template <class T, int BY>
__global__ void scale(T* p, T by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = p[i] * by + (T)BY;
}
__global__ void count_blocks(int* sums) {
    if (threadIdx.x == 0) atomicAdd(&sums[0], 1);
    cg::this_grid().sync();
    if (threadIdx.x == 0 && blockIdx.x == 0) sums[1] = sums[0];
}
static __global__ void use_dynamic(int* out) {
    extern __shared__ int kept[];
    kept[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) *out = kept[blockDim.x - 1];
}
static __global__ void use_dynamic_too(int* out) {
    extern __shared__ int kept[];
    kept[threadIdx.x] = 1;
    *out = kept[threadIdx.x];
}
static __global__ void use_both(int* out) {
    __shared__ int kept[10 << 10];
    extern __shared__ int words[];
    kept[threadIdx.x] = words[threadIdx.x] = 1;
    if (threadIdx.x == 0) *out = kept[0] + words[0];
}
__global__ void fails(int* p) { p[1 << 28] = 1; }  // SX101

static void named() {
    float host[4] = {1, 2, 3, 4}, by = 2;
    float* p;
    int n = 4;
    cudaMalloc(&p, sizeof host);
    cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice);
    void* arguments[] = {&p, &by, &n};
    EXPECT(cudaLaunchKernel(scale<float, 1>, dim3(1), dim3(32), arguments, 0, nullptr) ==
           cudaSuccess);
    EXPECT(cudaLaunchKernel((void*)scale<float, 1>, 1, 32, arguments, 0, 0) == cudaSuccess);
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 32;
    EXPECT(cudaLaunchKernelEx(&config, scale<float, 1>, p, 2.0, 4) == cudaSuccess);
    cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost);
    EXPECT(host[0] == 15 && host[3] == 39);
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {2, 1, 1};
    config.attrs = &cluster;
    config.numAttrs = 1;
    EXPECT(cudaLaunchKernelEx(&config, scale<float, 1>, p, 2.0f, 4) == 801);  // SX409
    EXPECT(cudaGetLastError() == cudaErrorNotSupported);
    cudaFree(p);
}

static void cooperative() {
    int *sums, host[2];
    cudaMalloc(&sums, 8);
    cudaMemset(sums, 0, 8);
    void* arguments[] = {&sums};
    EXPECT(cudaLaunchCooperativeKernel((void*)count_blocks, 6, 64, arguments) == cudaSuccess);
    cudaMemcpy(host, sums, 8, cudaMemcpyDeviceToHost);
    EXPECT(host[1] == 6);
    const int blocks = 132 * 32 + 1;
    EXPECT(cudaLaunchCooperativeKernel(count_blocks, blocks, 64, arguments) == 720);  // SX401
    EXPECT(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    cudaFree(sums);
}

static void dynamic_memory() {
    int* out;
    cudaMalloc(&out, 4);
    const int bytes = 64 << 10;
    use_dynamic<<<1, 64, bytes>>>(out);  // SX402
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaFuncSetAttribute(use_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
           cudaSuccess);
    use_dynamic<<<1, 64, bytes>>>(out);
    EXPECT(cudaGetLastError() == cudaSuccess);
    auto chosen = use_dynamic;
    chosen<<<1, 64, bytes>>>(out);
    EXPECT(cudaGetLastError() == cudaSuccess);
    use_dynamic<<<1, 64, bytes + 4>>>(out);  // SX402
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    // What one kernel was granted is not another's.
    use_dynamic_too<<<1, 64, bytes>>>(out);  // SX402
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    void* arguments[] = {&out};
    EXPECT(cudaLaunchKernel(use_dynamic_too, 1, 64, arguments, bytes) == 1);  // SX402
    EXPECT(cudaLaunchKernel(use_dynamic, 1, 64, arguments, bytes) == cudaSuccess);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    // A grant need not be of more than 48 KB: static memory counts too.
    cudaFuncSetAttribute(use_both, cudaFuncAttributeMaxDynamicSharedMemorySize, 30 << 10);
    use_both<<<1, 64, 30 << 10>>>(out);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    cudaFree(out);
}

static void errors() {
    float* p;
    cudaMalloc(&p, 4);
    // A wrong shape is told once, and all goes on.
    scale<float, 0><<<1, 2048>>>(p, 1.0f, 1);  // SX401
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaSuccess);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaStreamDestroy(stream);
    scale<float, 0><<<1, 32, 0, stream>>>(p, 1.0f, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    fails<<<1, 1>>>((int*)p);  // a fault stays
    const cudaError_t fault = cudaDeviceSynchronize();
    EXPECT(fault == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == fault && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaMalloc(&p, 4) == fault && cudaMemset(p, 0, 4) == fault);
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaGetLastError() == fault);
    scale<float, 0><<<1, 32>>>(p, 1.0f, 0);
    EXPECT(cudaGetLastError() == fault);
    EXPECT(cudaDeviceReset() == cudaSuccess && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaMalloc(&p, 4) == cudaSuccess);
    scale<float, 0><<<1, 32>>>(p, 1.0f, 0);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
}

int main() {
    named();
    cooperative();
    dynamic_memory();
    errors();
    return unmet != 0;
}
