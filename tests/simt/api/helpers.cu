// The names that vendors' helpers and newer kernels ask for. Exits 0 when each does what it should.
#include <cuda.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <curand.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#if !defined(__DRIVER_TYPES_H__) || !defined(__CUDA_RUNTIME_H__) || !defined(__cuda_cuda_h__)
#error "the guards by which helpers tell what is included"
#endif
static int failures;
#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition)) ++failures, printf("%d: %s\n", __LINE__, #condition); \
    } while (0)

__global__ void dependent(float* x) {
    cudaGridDependencySynchronize();
    x[threadIdx.x] += 1;
    cudaTriggerProgrammaticLaunchCompletion();
}
__global__ void narrow(const float* x, unsigned char* four, unsigned char* power, float* back) {
    const int i = threadIdx.x;
    four[i] = __nv_cvt_float_to_fp4(x[i], __NV_E2M1, cudaRoundNearest);
    power[i] = __nv_cvt_float_to_e8m0(x[i], __NV_SATFINITE, cudaRoundPosInf);
    back[i] = (float)__nv_fp4_e2m1(x[i]);
}

static void pools() {
    cudaMemPool_t pool, own;
    uint64_t threshold = ~0ull, is = 0;
    EXPECT(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    EXPECT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) == 0);
    EXPECT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &is) == 0);
    EXPECT(is == threshold);
    cudaMemPoolProps props = {};
    EXPECT(cudaMemPoolCreate(&own, &props) == cudaErrorInvalidValue);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    EXPECT(cudaMemPoolCreate(&own, &props) == cudaSuccess);
    float *x, *y;
    EXPECT(cudaMallocFromPoolAsync(&x, 64, own, nullptr) == cudaSuccess);
    EXPECT(cudaMallocAsync(&y, 64, own, nullptr) == cudaSuccess && x != y);
    EXPECT(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &is) == 0 && is >= 128);
    EXPECT(cudaFreeAsync(x, nullptr) == cudaSuccess && cudaFreeAsync(y, nullptr) == cudaSuccess);
    EXPECT(cudaMemPoolTrimTo(own, 0) == cudaSuccess && cudaMemPoolDestroy(own) == cudaSuccess);
}

static void numbers_by_the_host() {
    constexpr int n = 20000;
    curandGenerator_t device, host;
    EXPECT(curandCreateGenerator(&device, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_SUCCESS);
    EXPECT(curandCreateGeneratorHost(&host, CURAND_RNG_PSEUDO_PHILOX4_32_10) == 0);
    float* x;
    static float here[n], there[n];
    cudaMalloc(&x, sizeof here);
    for (curandGenerator_t g : {device, host})
        EXPECT(curandSetPseudoRandomGeneratorSeed(g, 1234ull) == CURAND_STATUS_SUCCESS);
    EXPECT(curandGenerateUniform(device, x, n) == CURAND_STATUS_SUCCESS);
    EXPECT(curandGenerateUniform(host, here, n) == CURAND_STATUS_SUCCESS);
    cudaMemcpy(there, x, sizeof there, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < n; ++i) {
        EXPECT(here[i] == there[i] && here[i] > 0 && here[i] <= 1);
        sum += here[i];
    }
    EXPECT(std::fabs(sum / n - 0.5) < 0.01);
    EXPECT(curandGenerateNormal(device, x, n - 1, 0, 1) == CURAND_STATUS_LENGTH_NOT_MULTIPLE);
    EXPECT(curandGenerateNormal(device, x, n, 3, 2) == CURAND_STATUS_SUCCESS);
    cudaMemcpy(there, x, sizeof there, cudaMemcpyDeviceToHost);
    double mean = 0, squares = 0;
    for (float v : there) mean += v / n, squares += (v - 3) * (v - 3) / n;
    EXPECT(std::fabs(mean - 3) < 0.1 && std::fabs(squares - 4) < 0.2);
    EXPECT(curandDestroyGenerator(device) == 0 && curandDestroyGenerator(host) == 0);
}

int main() {
    pools();
    numbers_by_the_host();
    int mode = -1, clock = 0;
    EXPECT(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, 0) == cudaSuccess);
    EXPECT(mode == cudaComputeModeDefault && mode != cudaComputeModeProhibited);
    EXPECT(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0) == cudaSuccess && clock > 0);
    const char* text = nullptr;
    EXPECT(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text) == CUDA_SUCCESS);
    EXPECT(!strcmp(text, "CUDA_ERROR_INVALID_VALUE"));
    EXPECT(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
    EXPECT(!strcmp(text, "out of memory"));
    EXPECT(cuGetErrorString((CUresult)12345, &text) == CUDA_ERROR_INVALID_VALUE && !text);
    cudaStream_t stream;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamDefault) == cudaSuccess);

    constexpr int n = 12;
    const float values[n] = {0, 0.25f, 0.26f, 0.75f, -1.25f, 1.75f, 2.5f, 3.5f, 5, 7, -100, 1e-3f};
    const float fours[n] = {0, 0, 0.5f, 1, -1, 2, 2, 4, 4, 6, -6, 0};
    const int powers[n] = {0, 125, 126, 127, 128, 128, 129, 129, 130, 130, 134, 118};
    float *x, *back;
    unsigned char *four, *power, host[n];
    cudaMalloc(&x, sizeof values);
    cudaMalloc(&back, sizeof values);
    cudaMalloc(&four, n);
    cudaMalloc(&power, n);
    cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice);
    narrow<<<1, n, 0, stream>>>(x, four, power, back);
    float got[n];
    cudaMemcpy(got, back, sizeof got, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; ++i) EXPECT(got[i] == fours[i]);
    cudaMemcpy(host, power, n, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; ++i) EXPECT(host[i] == powers[i]);
    EXPECT(__nv_cvt_float_to_e8m0(1e-3f, __NV_NOSAT, cudaRoundZero) == 117);
    EXPECT(__nv_cvt_float_to_e8m0(INFINITY, __NV_NOSAT, cudaRoundZero) == 255);
    const __nv_fp4x2_e2m1 pair(make_float2(3, -0.5f));
    EXPECT(pair.__x == 0x95 && ((float2)pair).y == -0.5f);
    EXPECT((float)__nv_fp8_e8m0(3.0f) == 4);

    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = n;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int i = 0; i < 2; ++i) EXPECT(cudaLaunchKernelEx(&config, dependent, x) == cudaSuccess);
    cudaMemcpy(got, x, sizeof got, cudaMemcpyDeviceToHost);
    EXPECT(got[6] == 4.5f);
    return failures != 0;
}
