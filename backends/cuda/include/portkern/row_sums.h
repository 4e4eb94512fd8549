// Products of some dozen rows in float32, alone: a thread has four columns of B and all rows of A, which lie
// in shared memory the other way round, so that a row of B meets a word of four of them at a time. Threads of
// a block, and blocks, share the depth.
#pragma once
#include <portkern/shared_depth.h>

namespace row_sums {
constexpr int WIDE = 32, TALL = 8, THREADS = WIDE * TALL, AHEAD = 4;

template <int M>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void some_rows(const float* __restrict__ a,
                                                             const float* __restrict__ b, const Output all, int m,
                                                             int n, int k, int across, int each) {
    let_next_begin();
    constexpr int CHUNK = 4096 / M, PITCH = M + 4;
    __shared__ __align__(16) float left[CHUNK * PITCH];
    static_assert(CHUNK * PITCH >= THREADS * 16, "sums of four rows fit");
    const int tile = blockIdx.x % across, split = blockIdx.x / across, x = threadIdx.x % WIDE, y = threadIdx.x / WIDE;
    const int column = (tile * WIDE + x) * 4;
    const float* from = b + min(column, n - 4);
    const int first = split * each, end = min(first + each, k);
    float sums[M][4] = {};
    for (int start = first; start < end; start += CHUNK) {
        const int deep = min(CHUNK, end - start);
        const auto add = [&](int d, const float4& right) {
#pragma unroll
            for (int i = 0; i < M; i += 4) {
                const float4 four = *reinterpret_cast<const float4*>(left + d * PITCH + i);
                const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    sums[i + r][0] = fmaf(of[r], right.x, sums[i + r][0]);
                    sums[i + r][1] = fmaf(of[r], right.y, sums[i + r][1]);
                    sums[i + r][2] = fmaf(of[r], right.z, sums[i + r][2]);
                    sums[i + r][3] = fmaf(of[r], right.w, sums[i + r][3]);
                }
            }
        };
        float4 right[AHEAD];
        const auto fetch = [&](int d) {
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                right[u] = *reinterpret_cast<const float4*>(from + (int64_t)(start + min(d + u * TALL, deep - 1)) * n);
        };
        fetch(y);
        __syncthreads();
        for (int i = threadIdx.x; i < CHUNK * M; i += THREADS) {
            const int d = i % CHUNK, r = i / CHUNK;
            left[d * PITCH + r] = d < deep && r < m ? a[(int64_t)r * k + start + d] : 0.0f;
        }
        __syncthreads();
        for (int d = y; d < deep; d += AHEAD * TALL) {
            float4 now[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) now[u] = right[u];
            fetch(d + AHEAD * TALL);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                if (d + u * TALL < deep) add(d + u * TALL, now[u]);
        }
    }
    const Output c = all.from(split, 0);
    float4* held = reinterpret_cast<float4*>(left);
#pragma unroll
    for (int i = 0; i < M; i += 4) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 4; ++r)
            held[(r * TALL + y) * WIDE + x] =
                make_float4(sums[i + r][0], sums[i + r][1], sums[i + r][2], sums[i + r][3]);
        __syncthreads();
        if (threadIdx.x >= 4 * WIDE) continue;
        const int r = threadIdx.x / WIDE;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int t = 0; t < TALL; ++t) {
            const float4 one = held[(r * TALL + t) * WIDE + x];
            total.x += one.x, total.y += one.y, total.z += one.z, total.w += one.w;
        }
        if (i + r >= m || column >= n) continue;
        float* const to = c.parts ? c.parts : c.whole;
        *reinterpret_cast<float4*>(to + (int64_t)(i + r) * n + column) = total;
    }
}

inline int launch_parts(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, int64_t splits,
                        cudaStream_t stream) {
    const int64_t across = (n + 4 * WIDE - 1) / (4 * WIDE), step = AHEAD * TALL;
    const int64_t each = (k + splits * step - 1) / (splits * step) * step, parts = (k + each - 1) / each;
    const auto kernel = m <= 8 ? some_rows<8> : some_rows<16>;
    return share_depth(parts, c, m * n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(across * parts), THREADS, 0, stream>>>(a, b, to, (int)m, (int)n, (int)k, (int)across,
                                                                   (int)each);
    });
}

// Of whole packs, and of so much depth that what is read counts.
constexpr int LEAST_ROWS = 3, MOST_ROWS = 16, LEAST_DEPTH = 256, WANTED = 264;  // blocks
inline bool suits(int64_t m, int64_t n, int64_t k) {
    constexpr int64_t MOST = 1 << 30;
    return m >= LEAST_ROWS && m <= MOST_ROWS && k >= LEAST_DEPTH && n >= 4 * WIDE && k < MOST && n < MOST;
}

inline int launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    const int64_t tiles = (n + 4 * WIDE - 1) / (4 * WIDE), most = k / (2 * AHEAD * TALL);
    const int64_t wanted = WANTED / tiles < most ? WANTED / tiles : most;
    return launch_parts(a, b, c, m, n, k, wanted < 1 ? 1 : wanted, stream);
}
}  // namespace row_sums
