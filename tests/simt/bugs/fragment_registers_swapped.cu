// what: two registers of a hand-loaded mma fragment are exchanged
// expect: wrong
// widths: 32
// pitfall: 21
// arch: sm_80
// sanitizer: none
// group: arithmetic
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int m = 16, n = 8, depth = 16;

__device__ unsigned pair(const __half* at) { return *reinterpret_cast<const unsigned*>(at); }

// c = a b for one warp; b is stored by columns. Layouts as in the PTX manual, mma.m16n8k16.
__global__ void multiply(const __half* a, const __half* b, float* c) {
    const int group = threadIdx.x / 4, k = threadIdx.x % 4 * 2;
    const unsigned a0 = pair(a + group * depth + k), a3 = pair(a + (group + 8) * depth + k + 8);
#ifdef BUG
    const unsigned a2 = pair(a + (group + 8) * depth + k), a1 = pair(a + group * depth + k + 8);
#else
    const unsigned a1 = pair(a + (group + 8) * depth + k), a2 = pair(a + group * depth + k + 8);
#endif
    const unsigned b0 = pair(b + group * depth + k), b1 = pair(b + group * depth + k + 8);
    float d[4];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.f), "f"(0.f), "f"(0.f),
          "f"(0.f));
    for (int i = 0; i < 4; ++i) c[(group + i / 2 * 8) * n + k + i % 2] = d[i];
}

int main() {
    const auto left = numbers<float>(m * depth, 31), right = numbers<float>(n * depth, 29);
    std::vector<__half> a(m * depth), b(n * depth);
    for (int i = 0; i < m * depth; ++i) a[i] = __float2half(left[i]);
    for (int i = 0; i < n * depth; ++i) b[i] = __float2half(right[i]);
    std::vector<float> want(m * n);
    for (int i = 0; i < m * n; ++i)
        for (int k = 0; k < depth; ++k)
            want[i] += left[i / n * depth + k] * right[i % n * depth + k];

    float* c = device_array<float>(m * n);
    multiply<<<1, 32>>>(to_device(a), to_device(b), c);
    finish();
    return check(to_host(c, m * n), want);
}
