// y = x W' with a weight of four bits. Few rows of x: lanes lie along the rows of the weight, which are read once and
// unpacked in registers. More rows: the weight is unpacked once, and multiplied in the ways of linear.h.
#define FEW_TILES 256  // knob: 64 128 256 512
#define FEW 8  // knob: 4 8
#include <portkern/linear.h>

constexpr int THREADS = 128, LANES = 32, ROWS = THREADS / LANES, EACH = 16;  // bytes of a lane at once

struct Quantised {
    const scalar_t* x;
    const uint8_t* packed;
    const scalar_t *scale, *low;
    scalar_t* y;
    int64_t m, n, groups, bytes, k;  // bytes: of a group
};

// Four bits of a word as a float: beside 2^23 they are its lowest.
__device__ __forceinline__ float unpacked(unsigned word, int at) {
    return __int_as_float((int)(word >> at & 15u | 0x4b000000u)) - 8388608.0f;
}

// In 32 bits where that does: in 64, a division is a hundred instructions.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
    return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b;
}

// M rows of x with one of the weight for each group of lanes. WHOLE: groups are whole packs of EACH bytes, else lanes
// take a byte at a time.
template <int M, bool WHOLE>
__global__ __launch_bounds__(THREADS) void few_rows(const Quantised all) {
    constexpr int SIZE = WHOLE ? EACH : 1;
    const int lane = threadIdx.x % LANES;
    const int64_t own = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES, row = min(own, all.n - 1);
    const int64_t steps = all.groups * all.bytes / SIZE, each = all.bytes / SIZE;
    float sums[M] = {};
#pragma unroll 2
    for (int64_t i = lane; i < steps; i += LANES) {
        const int64_t group = row * all.groups + quotient(i, each);
        const float scale = float(all.scale[group]), low = float(all.low[group]);
        unsigned words[(SIZE + 3) / 4];
        if constexpr (WHOLE) {
            const uint4 bits = reinterpret_cast<const uint4*>(all.packed)[row * steps + i];
            words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
        } else {
            words[0] = all.packed[row * steps + i];
        }
        float weights[2 * SIZE];
#pragma unroll
        for (int j = 0; j < 2 * SIZE; ++j) weights[j] = fmaf(unpacked(words[j / 8], j % 8 * 4), scale, low);
#pragma unroll
        for (int r = 0; r < M; ++r) {
            const scalar_t* x = all.x + min((int64_t)r, all.m - 1) * all.k + i * 2 * SIZE;
            if constexpr (WHOLE) {
#pragma unroll
                for (int p = 0; p < 2 * SIZE / VEC; ++p) {
                    const Pack values = reinterpret_cast<const Pack*>(x)[p];
#pragma unroll
                    for (int j = 0; j < VEC; ++j) sums[r] = fmaf(float(values.at[j]), weights[p * VEC + j], sums[r]);
                }
            } else {
                sums[r] = fmaf(float(x[0]), weights[0], fmaf(float(x[1]), weights[1], sums[r]));
            }
        }
    }
#pragma unroll
    for (int r = 0; r < M; ++r) {
        const float sum = lane_reduce<Sum>(sums[r], LANES);
        if (lane == 0 && r < all.m && own < all.n) all.y[r * all.n + row] = scalar_t(sum);
    }
}

template <bool WHOLE, int M = 1>
int launch_few(const Quantised& all, cudaStream_t stream) {
    if constexpr (M < FEW)
        if (all.m > M) return launch_few<WHOLE, 2 * M>(all, stream);
    few_rows<M, WHOLE><<<(unsigned)((all.n + ROWS - 1) / ROWS), THREADS, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

// A thread unpacks four bytes where these are of one group, else one.
template <int SIZE>
__global__ __launch_bounds__(THREADS) void unpack(const Quantised all, scalar_t* weight, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t group = quotient(i * SIZE, all.bytes);
    const float scale = float(all.scale[group]), low = float(all.low[group]);
    const unsigned word = SIZE == 4 ? reinterpret_cast<const unsigned*>(all.packed)[i] : all.packed[i];
    Some<2 * SIZE> result;
#pragma unroll
    for (int j = 0; j < 2 * SIZE; ++j) result.at[j] = scalar_t(fmaf(unpacked(word, j * 4), scale, low));
    reinterpret_cast<Some<2 * SIZE>*>(weight)[i] = result;
}

extern "C" int int4_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, const scalar_t* low,
                           scalar_t* y, int64_t m, int64_t n, int64_t groups, int64_t bytes, int64_t k,
                           cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    const Quantised all = {x, packed, scale, low, y, m, n, groups, bytes, k};
    if (m <= FEW) {
        const bool whole = bytes % EACH == 0 && ((uintptr_t)packed | (uintptr_t)x) % 16 == 0;
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
