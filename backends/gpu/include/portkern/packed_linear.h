// y = x W' with a weight whose elements lie in bytes, in groups with parameters of their own. Few rows of x: lanes lie
// along the rows of the weight, which are read once and unpacked in registers. More rows: the weight is unpacked once,
// and multiplied in the ways of linear.h. A Code says what bytes mean: so many elements (EACH) in one, what a group's
// parameters are, and what one of them makes of the j-th element of a word. FEW is a knob of the kernel.
#pragma once
#include <portkern/linear.h>

namespace packed_linear {
constexpr int THREADS = 128, LANES = 32, ROWS = THREADS / LANES, TAKEN = 16;  // bytes of a lane at once

template <class Code>
struct Layer {
    const scalar_t* x;
    const uint8_t* packed;
    Code code;
    scalar_t* y;
    int64_t m, n, groups, bytes, k;  // bytes: of a group
};

// In 32 bits where that does: in 64, a division is a hundred instructions.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
    return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b;
}

// M rows of x with one of the weight for each group of lanes. WHOLE: groups are whole packs of TAKEN bytes, else
// lanes take a byte at a time.
template <int M, bool WHOLE, class Code>
__global__ __launch_bounds__(THREADS) void few_rows(const Layer<Code> all) {
    constexpr int SIZE = WHOLE ? TAKEN : 1, COUNT = SIZE * Code::EACH, IN_WORD = 4 * Code::EACH;
    constexpr int AHEAD = M > 2 && sizeof(scalar_t) == 4 ? 1 : 2;  // two of wide ones have no room in registers
    const int lane = threadIdx.x % LANES;
    const int64_t own = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES, row = min(own, all.n - 1);
    const int64_t steps = all.groups * all.bytes / SIZE, each = all.bytes / SIZE;
    float sums[M] = {};
#pragma unroll AHEAD
    for (int64_t i = lane; i < steps; i += LANES) {
        const auto group = all.code.group(row * all.groups + quotient(i, each));
        unsigned words[(SIZE + 3) / 4];
        if constexpr (WHOLE) {
            const uint4 bits = reinterpret_cast<const uint4*>(all.packed)[row * steps + i];
            words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
        } else {
            words[0] = all.packed[row * steps + i];
        }
        float weights[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; ++j) weights[j] = group.value(words[j / IN_WORD], j % IN_WORD);
#pragma unroll
        for (int r = 0; r < M; ++r) {
            const scalar_t* x = all.x + min((int64_t)r, all.m - 1) * all.k + i * COUNT;
            if constexpr (WHOLE) {
#pragma unroll
                for (int p = 0; p < COUNT / VEC; ++p) {
                    const Pack values = reinterpret_cast<const Pack*>(x)[p];
#pragma unroll
                    for (int j = 0; j < VEC; ++j) sums[r] = fmaf(float(values.at[j]), weights[p * VEC + j], sums[r]);
                }
            } else {
#pragma unroll
                for (int j = COUNT - 1; j >= 0; --j) sums[r] = fmaf(float(x[j]), weights[j], sums[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < M; ++r) {
        const float sum = lane_reduce<Sum>(sums[r], LANES);
        if (lane == 0 && r < all.m && own < all.n) all.y[r * all.n + row] = scalar_t(sum);
    }
}

template <bool WHOLE, int M = 1, class Code>
int launch_few(const Layer<Code>& all, cudaStream_t stream) {
    if constexpr (M < FEW)
        if (all.m > M) return launch_few<WHOLE, 2 * M>(all, stream);
    few_rows<M, WHOLE><<<(unsigned)((all.n + ROWS - 1) / ROWS), THREADS, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

// A thread unpacks four bytes where these are of one group, else one.
template <int SIZE, class Code>
__global__ __launch_bounds__(THREADS) void unpack(const Layer<Code> all, scalar_t* weight, int64_t count) {
    constexpr int COUNT = SIZE * Code::EACH;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const auto group = all.code.group(quotient(i * SIZE, all.bytes));
    const unsigned word = SIZE == 4 ? reinterpret_cast<const unsigned*>(all.packed)[i] : all.packed[i];
    Some<COUNT> result;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) result.at[j] = scalar_t(group.value(word, j));
    reinterpret_cast<Some<COUNT>*>(weight)[i] = result;
}

template <class Code>
int launch(const Layer<Code>& all, cudaStream_t stream) {
    const auto [x, packed, code, y, m, n, groups, bytes, k] = all;
    if (m == 0 || n == 0) return 0;
    if (m <= FEW) {
        const bool whole = bytes % TAKEN == 0 && ((uintptr_t)packed | (uintptr_t)x) % 16 == 0;
        return whole ? launch_few<true>(all, stream) : launch_few<false>(all, stream);
    }
    Scratch<scalar_t> weight(n * k, stream);
    if (weight.error) return (int)weight.error;
    const bool words = bytes % 4 == 0 && (uintptr_t)packed % 4 == 0;
    const int64_t count = n * groups * bytes / (words ? 4 : 1);
    const unsigned blocks = (unsigned)((count + THREADS - 1) / THREADS);
    if (count && words) unpack<4><<<blocks, THREADS, 0, stream>>>(all, weight.data, count);
    else if (count) unpack<1><<<blocks, THREADS, 0, stream>>>(all, weight.data, count);
    return layer::launch({x, weight.data, nullptr, y, m, n, k}, stream);
}
}  // namespace packed_linear
