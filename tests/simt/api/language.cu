// The language's own words, in the places where programs put them.
#include <builtin_types.h>
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <cuda_runtime_api.h>
#include <device_functions.h>
#include <device_launch_parameters.h>
#include <driver_types.h>
#include <nvToolsExt.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "expect.h"

#ifndef __CUDACC__
#error "this is a CUDA compiler"
#endif
static_assert(CUDART_VERSION >= 12000 && __CUDACC_VER_MAJOR__ >= 12 && CUDA_VERSION >= 12000, "");

struct __align__(16) Padded {
    float x;
    __host__ __device__ __forceinline__ float twice() const { return 2 * x; }
};
static_assert(alignof(Padded) == 16, "");

static __device__ __inline__ int helper(const int* __restrict__ p) { return p[0]; }
template <class F>
__global__ void __launch_bounds__(64, 2) apply(F f, int n) {
    if (threadIdx.x < n) f((int)threadIdx.x);
}
__global__ void by_value(const __grid_constant__ Padded p, float4 v, float* out) {
    *out = p.twice() + v.w;
}
extern "C" __global__ void plain(int* p) {
    p[threadIdx.x] = max(helper(p), min(3, (int)threadIdx.x)) + abs(-1);
}

int main() {
    nvtxRangePushA("all");
    nvtxEventAttributes_t mark = {};
    mark.version = NVTX_VERSION;
    mark.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    mark.messageType = NVTX_MESSAGE_TYPE_ASCII;
    mark.message.ascii = "here";
    nvtxMarkEx(&mark);
    nvtxNameCudaStream(cudaStream_t(0), "default");
    int *p, host[4];
    float *out, value;
    cudaMalloc(&p, 16);
    cudaMalloc(&out, 4);
    cudaMemset(p, 0, 16);
    plain<<<1, 4>>>(p);
    apply<<<1, 64>>>([=] __device__(int i) { p[i] += 10; }, 4);
    cudaMemcpy(host, p, 16, cudaMemcpyDeviceToHost);
    EXPECT(host[0] == 11 && host[3] >= 14);
    by_value<<<dim3(1, 1), dim3{1}>>>(Padded{3}, make_float4(0, 0, 0, 4), out);
    cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost);
    EXPECT(value == 10);
    EXPECT(cudaProfilerStart() == cudaSuccess && cudaProfilerStop() == cudaSuccess);
    nvtxRangePop();
    return unmet != 0;
}
