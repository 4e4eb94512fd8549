// what: wgmma reads its operand swizzled, and TMA brought it as it lies in memory
// expect: wrong
// widths: 32
// arch: sm_90a
// sanitizer: none
// group: memory
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int m = 64, n = 8, k = 64;

// Rows of 128 bytes, swizzled; groups of 8 rows follow each other.
__device__ uint64_t descriptor(const void* tile) {
    return (uint64_t)(shared_address(tile) >> 4 & 0x3FFF) | (uint64_t)1 << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define MULTIPLY(KIND, d, a, b)                                                                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." KIND "." KIND                        \
                 " {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"                                        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b))

__global__ void product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                        float* c) {
    __shared__ alignas(1024) __half as[m][k];
    __shared__ alignas(1024) __half bs[n][k];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        expect(&full, sizeof as + sizeof bs);
        load_box(as, &a, 0, 0, &full);
        load_box(bs, &b, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < k; i += 16) MULTIPLY("f16", d, descriptor(&as[0][i]), descriptor(&bs[0][i]));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; ++i) c[(row + i / 2 * 8) * n + column + i % 2] = d[i];
}

int main() {
    const auto a = numbers<float>(m * k, 7), b = numbers<float>(n * k, 5);
    const std::vector<__half> a16(a.begin(), a.end()), b16(b.begin(), b.end());
    std::vector<float> want(m * n);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            for (int l = 0; l < k; ++l) want[i * n + j] += a[i * k + l] * b[j * k + l];
#ifdef BUG
    const auto swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
#else
    const auto swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
#endif
    const auto kind = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    float* c = device_array<float>(m * n);
    product<<<1, 128>>>(map_of(kind, 2, to_device(a16), m, k, m, k, swizzle),
                        map_of(kind, 2, to_device(b16), n, k, n, k, swizzle), c);
    finish();
    return check(to_host(c, m * n), want);
}
