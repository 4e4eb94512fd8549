// Every matrix builtin once: `amd WAVE IN OUT` runs those of one wave width on operands as the
// lanes hold them. IN has A, B and C of each in order, OUT gets D.
#include <hip/hip_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "simt/mfma.h"

typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
typedef _Float16 h16 __attribute__((ext_vector_type(16)));
typedef short s2 __attribute__((ext_vector_type(2)));
typedef short s4v __attribute__((ext_vector_type(4)));
typedef short s8v __attribute__((ext_vector_type(8)));
typedef short s16v __attribute__((ext_vector_type(16)));
typedef int i2 __attribute__((ext_vector_type(2)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef int i8v __attribute__((ext_vector_type(8)));
typedef int i16v __attribute__((ext_vector_type(16)));
typedef int i32v __attribute__((ext_vector_type(32)));
typedef float f2 __attribute__((ext_vector_type(2)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f8 __attribute__((ext_vector_type(8)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef float f32v __attribute__((ext_vector_type(32)));
typedef double d4 __attribute__((ext_vector_type(4)));

static FILE *in, *out;
static int wave;

static void* read(size_t bytes) {
    void* to;
    if (hipMalloc(&to, bytes) != hipSuccess) exit(3);
    std::vector<char> host(bytes);
    if (fread(host.data(), 1, bytes, in) != bytes) exit(1);
    if (hipMemcpy(to, host.data(), bytes, hipMemcpyHostToDevice) != hipSuccess) exit(3);
    return to;
}

template <class X, class Z>
static void run(void (*kernel)(const X*, const X*, Z*), int lanes) {
    if (lanes != wave) return;
    X* a = (X*)read(lanes * sizeof(X));
    X* b = (X*)read(lanes * sizeof(X));
    Z* c = (Z*)read(lanes * sizeof(Z));
    kernel<<<1, lanes>>>(a, b, c);
    std::vector<char> host(lanes * sizeof(Z));
    if (hipMemcpy(host.data(), c, host.size(), hipMemcpyDeviceToHost) != hipSuccess) exit(3);
    fwrite(host.data(), 1, host.size(), out);
    (void)hipFree(a);
    (void)hipFree(b);
    (void)hipFree(c);
}

#define KERNEL(NAME, LANES, X, Z, ...)                               \
    __global__ void NAME(const X* pa, const X* pb, Z* pc) {          \
        const unsigned l = threadIdx.x;                              \
        const X a = pa[l], b = pb[l];                                \
        const Z c = pc[l];                                           \
        pc[l] = __VA_ARGS__;                                         \
    }
#define MFMA(NAME, X, Z) \
    KERNEL(k_##NAME, 64, X, Z, __builtin_amdgcn_mfma_##NAME(a, b, c, 0, 0, 0))
#define MFMA_MODE(NAME, X, Z, CBSZ, ABID, BLGP)                  \
    KERNEL(k_##NAME##_##CBSZ##ABID##BLGP, 64, X, Z,              \
           __builtin_amdgcn_mfma_##NAME(a, b, c, CBSZ, ABID, BLGP))
#define WMMA(NAME, LANES, X, Z) KERNEL(k_##NAME, LANES, X, Z, __builtin_amdgcn_wmma_##NAME(a, b, c))
#define WMMA_HALF(NAME, UPPER, LANES, X, Z) \
    KERNEL(k_##NAME##_##UPPER, LANES, X, Z, __builtin_amdgcn_wmma_##NAME(a, b, c, UPPER))
#define WMMA_INT(NAME, SA, SB, CLAMP, LANES, X, Z)     \
    KERNEL(k_##NAME##_##SA##SB##CLAMP, LANES, X, Z,    \
           __builtin_amdgcn_wmma_##NAME(SA, a, SB, b, c, CLAMP))
#include "amd_list.h"
#undef KERNEL
#define KERNEL(NAME, LANES, X, Z, ...) run<X, Z>(NAME, LANES);

int main(int, char** argv) {
    wave = atoi(argv[1]);
    in = fopen(argv[2], "rb");
    out = fopen(argv[3], "wb");
#include "amd_list.h"
    fclose(out);
    return (int)hipDeviceSynchronize();
}
