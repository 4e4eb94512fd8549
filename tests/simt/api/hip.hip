// The same API by HIP's names, and what HIP has of its own.
#include <hip/hip_runtime.h>
#include <hipblas/hipblas.h>

#include <cstring>

#include "expect.h"

__constant__ int table[4];

__global__ void gather(int* out) {
    const int i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    out[i] = table[i % 4] + (int)threadIdx.x;
}
template <class T>
__global__ void scale(T* p, T by) {
    HIP_DYNAMIC_SHARED(T, kept);
    kept[threadIdx.x] = p[threadIdx.x];  // SX112
    __syncthreads();
    p[threadIdx.x] = by * kept[threadIdx.x];
}

static void vectors() {
    float4 v = make_float4(1, 2, 3, 4), w = v * 2.0f + v;
    w += make_float4(1, 1, 1, 1);
    EXPECT(w.x == 4 && w.w == 13 && v == v && v != w);
    const float2 negative = -make_float2(0, 2);
    EXPECT(negative.y == -2 && 1 / negative.x < 0);
    const int3 bits = make_int3(1, 2, 4) << 1;
    EXPECT((bits & make_int3(2, 2, 2)).x == 2 && bits.z == 8 && (10 - bits).y == 6);
}

static void memory() {
    int values[4] = {10, 20, 30, 40}, *out, *pinned;
    EXPECT(hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof values) == hipSuccess);
    EXPECT(hipMalloc(&out, 64 * 4) == hipSuccess);
    EXPECT(hipHostMalloc(&pinned, 64 * 4) == hipSuccess);
    EXPECT(hipMemsetD32(out, 7, 64) == hipSuccess);
    EXPECT(hipMemcpyDtoH(pinned, out, 64 * 4) == hipSuccess && pinned[63] == 7);
    gather<<<2, 32>>>(out);
    EXPECT(hipMemcpyWithStream(pinned, out, 64 * 4, hipMemcpyDeviceToHost, 0) == hipSuccess);
    EXPECT(pinned[35] == 43);
    float *p, one = 1;
    hipMalloc((void**)&p, 64 * 4);
    hipMemset(p, 0, 64 * 4);
    hipMemcpyHtoD(p, &one, 4);
    hipLaunchKernelGGL(HIP_KERNEL_NAME(scale<float>), dim3(1), dim3(64), 64 * 4, 0, p, 3.0f);
    float by = 2;
    void* arguments[] = {&p, &by};
    EXPECT(hipLaunchKernel((const void*)scale<float>, 1, 64, arguments, 64 * 4, 0) == hipSuccess);
    EXPECT(hipDeviceSynchronize() == hipSuccess);
    EXPECT(hipMemcpy(&one, p, 4, hipMemcpyDeviceToHost) == hipSuccess && one == 6);
    hipPointerAttribute_t of;
    EXPECT(hipPointerGetAttributes(&of, pinned) == hipSuccess && of.type == hipMemoryTypeHost);
    EXPECT(hipFree(out) == hipSuccess && hipFree(p) == hipSuccess);
    EXPECT(hipHostFree(pinned) == hipSuccess);
}

static void device() {
    hipDeviceProp_t p;
    EXPECT(hipGetDeviceProperties(&p, 0) == hipSuccess && p.warpSize == warpSize);
    EXPECT(!strcmp(p.gcnArchName, "gfx942"));
    int value;
    EXPECT(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0) == hipSuccess);
    EXPECT(value == 64);
    EXPECT(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0) == hipSuccess);
    EXPECT(value == p.multiProcessorCount);
    EXPECT(hipErrorOutOfMemory == 2 && hipErrorInvalidHandle == 400 && hipErrorNotFound == 500);
    EXPECT(!strcmp(hipGetErrorName(hipErrorInvalidValue), "hipErrorInvalidValue"));
    EXPECT(!strcmp(hipGetErrorName(hipErrorOutOfMemory), "hipErrorOutOfMemory"));
    EXPECT(!strcmp(hipGetErrorString(hipErrorInvalidValue), "invalid argument"));
    // LDS needs no leave beyond 48 KB.
    EXPECT(hipFuncSetAttribute((const void*)scale<float>,
                               hipFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) == hipSuccess);
    scale<float><<<1, 64, 64 << 10>>>(nullptr, 1.0f);
    EXPECT(hipGetLastError() != hipErrorInvalidValue);
    EXPECT(hipDeviceReset() == hipSuccess);
}

static void blas() {
    hipblasHandle_t handle;
    EXPECT(hipblasCreate(&handle) == HIPBLAS_STATUS_SUCCESS);
    float *a, host[4] = {1, 2, 3, 4};
    const float one = 1, zero = 0;
    hipMalloc(&a, 48);
    hipMemcpy(a, host, 16, hipMemcpyHostToDevice);
    hipMemcpy(a + 4, host, 16, hipMemcpyHostToDevice);
    EXPECT(hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_T, 2, 2, 2, &one, a, 2, a + 4, 2, &zero,
                        a + 8, 2) == HIPBLAS_STATUS_SUCCESS);
    hipMemcpy(host, a + 8, 16, hipMemcpyDeviceToHost);
    EXPECT(host[0] == 10 && host[1] == 14 && host[2] == 14 && host[3] == 20);
    EXPECT(hipblasGemmEx(handle, HIPBLAS_OP_N, HIPBLAS_OP_N, 2, 2, 2, &one, a, HIP_R_32F, 2, a + 4,
                         HIP_R_32F, 2, &zero, a + 8, HIP_R_32F, 2, HIPBLAS_COMPUTE_32F,
                         HIPBLAS_GEMM_DEFAULT) == HIPBLAS_STATUS_SUCCESS);
    hipMemcpy(host, a + 8, 16, hipMemcpyDeviceToHost);
    EXPECT(host[0] == 7 && host[3] == 22);
    EXPECT(hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_N, 2, 2, 2, &one, a, 1, a, 2, &zero, a,
                        2) == HIPBLAS_STATUS_INVALID_VALUE);
    EXPECT(hipblasDestroy(handle) == HIPBLAS_STATUS_SUCCESS);
    hipFree(a);
}

int main() {
    vectors();
    memory();
    blas();
    device();
    return unmet != 0;
}
