// Products of a warpgroup of every kind of operand, in every layout of shared memory that PTX describes,
// beside sums in double: exits with 0 where all are equal. Inputs are small whole numbers, so sums are exact.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstring>
#include <type_traits>

#include "../bugs/check.h"

constexpr int M = 64, DEPTH_BYTES = 128;  // four instructions of 32 bytes
constexpr int BYTES = 2 * M * DEPTH_BYTES;  // of A, and of B with rows that a span is wider than

struct Layout {
    int span;  // bytes of a swizzled row, 0: none
    bool across;
};

__host__ __device__ inline unsigned swizzled(unsigned at, int span) {
    return span ? at ^ (at / 128 % 8 * 16 & (span - 16)) : at;
}
// Where element k of row `row` lies, of a tile of `rows`.
__host__ __device__ inline unsigned place(Layout l, int row, int k, int rows, int bytes) {
    if (!l.across) {
        const int b = k * bytes;
        if (!l.span) return row / 8 * 1024 + b / 16 * 128 + row % 8 * 16 + b % 16;
        const int piece = b / l.span;  // a tile of its own for each `span` bytes of the depth
        return swizzled(piece * rows * l.span + row / 8 * (8 * l.span) + row % 8 * l.span + b % l.span, l.span);
    }
    const int b = row * bytes, depth = DEPTH_BYTES / bytes;
    if (!l.span) return b / 16 * (depth * 16) + k / 8 * 128 + k % 8 * 16 + b % 16;
    return swizzled(b / l.span * (depth * l.span) + k * l.span + b % l.span, l.span);
}
__device__ uint64_t descriptor(const char* tile, Layout l, int step, int rows, int bytes) {
    const int depth = DEPTH_BYTES / bytes;
    int start, leading, stride;
    if (!l.across) {
        const int b = step * 32;
        start = l.span ? b / l.span * rows * l.span + b % l.span : b / 16 * 128;
        leading = 128;
        stride = l.span ? 8 * l.span : 1024;
    } else {
        start = l.span ? step * 16 * l.span : step * 2 * 128;
        leading = l.span ? depth * l.span : 128;
        stride = l.span ? 8 * l.span : depth * 16;
    }
    const uint64_t address = (unsigned)__cvta_generic_to_shared(tile) + start;
    const uint64_t kind = l.span == 128 ? 1 : l.span == 64 ? 2 : l.span == 32 ? 3 : 0;
    return (address >> 4 & 0x3FFF) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | kind << 62;
}

#define LIST_8 "{%0, %1, %2, %3}"
#define SUMS_8(s) "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
#define LIST_16 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define SUMS_16(s) SUMS_8(s), "+r"(s[4]), "+r"(s[5]), "+r"(s[6]), "+r"(s[7])
#define ISSUE(TEXT, ...) asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" TEXT ";\n}" : __VA_ARGS__)
#define OF_HALVES(N, KIND, FIRST, A, B, KEEP)                                                                   \
    ISSUE(KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." KIND "." KIND " " LIST_##N ", %" A ", %" B \
               ", keep, 1, -1, " FIRST,                                                                         \
          SUMS_##N(s)                                                                                           \
          : "l"(a), "l"(b), "r"(keep), "n"(ACROSS_A), "n"(ACROSS_B))
#define OF_OTHERS(N, K, SUM, KIND, A, B, KEEP, SCALES)                                                          \
    ISSUE(KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k" #K "." SUM "." KIND " " LIST_##N ", %" A ", %" B \
               ", keep" SCALES,                                                                                 \
          SUMS_##N(s)                                                                                           \
          : "l"(a), "l"(b), "r"(keep))

template <class T, int N, bool ACROSS_A, bool ACROSS_B>
__device__ void multiply(unsigned (&s)[N / 2], uint64_t a, uint64_t b, int keep) {
    if constexpr (std::is_same<T, __half>::value && N == 8)
        OF_HALVES(8, "f16", "%7, %8", "4", "5", "6");
    else if constexpr (std::is_same<T, __half>::value)
        OF_HALVES(16, "f16", "%11, %12", "8", "9", "10");
    else if constexpr (std::is_same<T, __nv_bfloat16>::value)
        OF_HALVES(8, "bf16", "%7, %8", "4", "5", "6");
    else if constexpr (std::is_same<T, float>::value)
        OF_OTHERS(8, 8, "f32", "tf32.tf32", "4", "5", "6", ", 1, -1");
    else if constexpr (std::is_same<T, __nv_fp8_e4m3>::value)
        OF_OTHERS(16, 32, "f32", "e4m3.e4m3", "8", "9", "10", ", 1, -1");
    else
        OF_OTHERS(8, 32, "s32", "s8.s8", "4", "5", "6", "");
}

// C = A B, or -A B where scales are; of A and B `depth` elements each row, as they lie in `place`.
template <class T, int N, int SPAN, bool ACROSS_A, bool ACROSS_B>
__global__ void product(const T* a, const T* b, unsigned* c) {
    extern __shared__ __align__(1024) char tiles[];
    constexpr int depth = DEPTH_BYTES / (int)sizeof(T);
    constexpr Layout of_a = {SPAN, ACROSS_A}, of_b = {SPAN, ACROSS_B};
    char* const at = tiles;
    char* const bt = tiles + M * DEPTH_BYTES;
    for (int i = threadIdx.x; i < M * depth; i += 128)
        *(T*)(at + place(of_a, i / depth, i % depth, M, sizeof(T))) = a[i];
    for (int i = threadIdx.x; i < N * depth; i += 128)
        *(T*)(bt + place(of_b, i / depth, i % depth, N, sizeof(T))) = b[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned s[N / 2];
    for (unsigned& each : s) each = 0x7FC00000;  // what is not kept does not count
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < 4; ++i)
        multiply<T, N, ACROSS_A, ACROSS_B>(s, descriptor(at, of_a, i, M, sizeof(T)),
                                           descriptor(bt, of_b, i, N, sizeof(T)), i > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < N / 2; ++i) c[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2] = s[i];
}

template <class T, int N, int SPAN, bool ACROSS_A = false, bool ACROSS_B = false>
int wrong(const char* name) {
    constexpr int depth = DEPTH_BYTES / (int)sizeof(T);
    constexpr bool whole = std::is_same<T, int8_t>::value;
    std::vector<T> a, b;
    for (float v : numbers<float>(M * depth, 7)) a.push_back(T(v - 3));
    for (float v : numbers<float>(N * depth, 5)) b.push_back(T(v - 2));
    unsigned* c = device_array<unsigned>(M * N);
    product<T, N, SPAN, ACROSS_A, ACROSS_B>
        <<<1, 128, BYTES>>>(to_device(a), to_device(b), c);
    finish();
    const std::vector<unsigned> got = to_host(c, M * N);
    int wrong = 0;
    for (int i = 0; i < M * N; ++i) {
        double want = 0;
        for (int k = 0; k < depth; ++k)
            want += (double)float(a[i / N * depth + k]) * (double)float(b[i % N * depth + k]);
        float sum;
        memcpy(&sum, &got[i], sizeof sum);
        wrong += whole ? (int)got[i] != (int)want : (double)sum != -want;
    }
    if (wrong) std::printf("%s, rows of %d bytes: %d of %d\n", name, SPAN, wrong, M * N);
    return wrong;
}

template <int SPAN>
int wrong_of_span() {
    return wrong<__half, 8, SPAN>("f16") + wrong<__half, 16, SPAN, true, false>("f16, A across") +
           wrong<__half, 16, SPAN, false, true>("f16, B across") + wrong<__nv_bfloat16, 8, SPAN>("bf16") +
           wrong<float, 8, SPAN>("tf32") + wrong<__nv_fp8_e4m3, 16, SPAN>("e4m3") + wrong<int8_t, 8, SPAN>("s8");
}

int main() {
    return (wrong_of_span<0>() + wrong_of_span<32>() + wrong_of_span<64>() + wrong_of_span<128>()) != 0;
}
