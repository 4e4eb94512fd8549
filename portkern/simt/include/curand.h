// cuRAND's generators for the host to call: pseudo-random ones, which fill device memory by a
// kernel. All draw Philox's numbers, of the distribution that is asked for; a device's other
// generators draw others. Sobol sequences and Poisson numbers are not here.
#pragma once
#include <cstddef>

#include "simt/cuda_only.h"
#include "cuda_runtime.h"
#include "curand_kernel.h"

#define CURAND_H_
#define CURAND_VERSION 10310

typedef enum curandStatus {
    CURAND_STATUS_SUCCESS = 0,
    CURAND_STATUS_VERSION_MISMATCH = 100,
    CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102,
    CURAND_STATUS_TYPE_ERROR = 103,
    CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201,
    CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204,
    CURAND_STATUS_INTERNAL_ERROR = 999,
} curandStatus_t;
typedef enum curandRngType {
    CURAND_RNG_PSEUDO_DEFAULT = 100,
    CURAND_RNG_PSEUDO_XORWOW = 101,
    CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141,
    CURAND_RNG_PSEUDO_MT19937 = 142,
    CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
} curandRngType_t;
typedef enum curandOrdering {
    CURAND_ORDERING_PSEUDO_BEST = 100,
    CURAND_ORDERING_PSEUDO_DEFAULT = 101,
    CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103,
    CURAND_ORDERING_PSEUDO_DYNAMIC = 104,
} curandOrdering_t;

namespace simt::random {

struct Generator {
    unsigned long long seed, offset;
    cudaStream_t stream;
    bool host;  // fills host memory
};

// out[i] = number(state of the i-th of the sequence), `width` numbers of it further on each time.
template <class T, class Number>
static inline curandStatus fill(Generator* g, T* out, size_t n, unsigned width, Number number) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    const unsigned long long seed = g->seed, first = g->offset;
    const auto one = [=](size_t i) {
        Philox state;
        begin(&state, seed, 0, first + i * width);
        out[i] = number(&state);
    };
    g->offset += n * width;
    if (g->host) {
        for (size_t i = 0; i < n; ++i) one(i);
        return CURAND_STATUS_SUCCESS;
    }
    if (!n) return CURAND_STATUS_SUCCESS;
    const Shape shape((unsigned)((n + 255) / 256), 256, 0, g->stream);
    launch(shape, "curandGenerate", [=] {
        const size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
        if (i < n) one(i);
    });
    return api::launch_result() ? CURAND_STATUS_LAUNCH_FAILURE : CURAND_STATUS_SUCCESS;
}

}  // namespace simt::random

typedef simt::random::Generator* curandGenerator_t;

static inline curandStatus curandCreateGenerator(curandGenerator_t* g, curandRngType) {
    *g = new simt::random::Generator{0, 0, nullptr, false};
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandCreateGeneratorHost(curandGenerator_t* g, curandRngType) {
    *g = new simt::random::Generator{0, 0, nullptr, true};
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandDestroyGenerator(curandGenerator_t g) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    delete g;
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandGetVersion(int* version) {
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandSetPseudoRandomGeneratorSeed(curandGenerator_t g,
                                                              unsigned long long seed) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    g->seed = seed;
    g->offset = 0;
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandSetGeneratorOffset(curandGenerator_t g,
                                                    unsigned long long offset) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    g->offset = offset;
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandSetGeneratorOrdering(curandGenerator_t g, curandOrdering) {
    return g ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}
static inline curandStatus curandSetStream(curandGenerator_t g, cudaStream_t stream) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    g->stream = stream;
    return CURAND_STATUS_SUCCESS;
}
static inline curandStatus curandGenerateSeeds(curandGenerator_t g) {
    return g ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

static inline curandStatus curandGenerate(curandGenerator_t g, unsigned* out, size_t n) {
    return simt::random::fill(g, out, n, 1, [](auto* s) { return curand(s); });
}
static inline curandStatus curandGenerateUniform(curandGenerator_t g, float* out, size_t n) {
    return simt::random::fill(g, out, n, 1, [](auto* s) { return curand_uniform(s); });
}
static inline curandStatus curandGenerateUniformDouble(curandGenerator_t g, double* out,
                                                       size_t n) {
    return simt::random::fill(g, out, n, 2, [](auto* s) { return curand_uniform_double(s); });
}
// As cuRAND: pairs are drawn together, so that an odd number of pseudo-random normals is refused.
static inline curandStatus curandGenerateNormal(curandGenerator_t g, float* out, size_t n,
                                                float mean, float deviation) {
    if (n % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    return simt::random::fill(g, out, n, 2,
                              [=](auto* s) { return mean + deviation * curand_normal(s); });
}
static inline curandStatus curandGenerateNormalDouble(curandGenerator_t g, double* out, size_t n,
                                                      double mean, double deviation) {
    if (n % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    return simt::random::fill(g, out, n, 4,
                              [=](auto* s) { return mean + deviation * curand_normal_double(s); });
}
static inline curandStatus curandGenerateLogNormal(curandGenerator_t g, float* out, size_t n,
                                                   float mean, float deviation) {
    if (n % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    return simt::random::fill(g, out, n, 2,
                              [=](auto* s) { return expf(mean + deviation * curand_normal(s)); });
}
