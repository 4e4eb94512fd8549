// What convolutions as products of filters and gathered patches share: tiles of both in shared memory, and
// what a quarter of a block's threads multiplies of them, by FMA or, for halves, on matrix units.
#pragma once
#include <portkern/matrix_unit.h>
#include <portkern/patches.h>

constexpr int THREADS = 256, PIXELS = 128;
constexpr int DEPTH = 4 * VEC;  // channels times places in the filter, per step

// A pack of a filter, of which `there` elements exist. ALIGNED: all or none.
template <bool ALIGNED>
__device__ __forceinline__ Pack load(const scalar_t* __restrict__ from, int there) {
    if (ALIGNED) {
        uint4 bits = make_uint4(0, 0, 0, 0);  // as one value: clang puts a struct into scratch here
        if (there > 0) bits = *reinterpret_cast<const uint4*>(from);
        return __builtin_bit_cast(Pack, bits);
    }
    Pack pack;
#pragma unroll
    for (int j = 0; j < VEC; ++j) pack.at[j] = j < there ? from[j] : scalar_t(0.0f);
    return pack;
}

#ifdef MATRIX_UNIT
// Filters and patches lie with the depth inside, padded by 16 bytes against bank conflicts.
typedef scalar_t Staged;
template <int ROWS>
constexpr int TILE = ROWS * (DEPTH + 8);

template <int ROWS>
__device__ __forceinline__ void stage(Staged* tile, int row, int depth, const Pack& pack) {
    *reinterpret_cast<Pack*>(tile + row * (DEPTH + 8) + depth) = pack;
}

// 64 pixels of 16 Q filters, in pieces of 16 x 16: one wave's part, or two warps' with half of the pixels
// each.
template <int Q>
struct Product {
    static constexpr int ACROSS = matrix_unit::LANES / 16;  // pieces
    static constexpr int FILTERS = matrix_unit::LANE_ROWS * Q;  // of this lane, and its pixels
    static constexpr int COUNT = matrix_unit::LANE_COLUMNS * ACROSS;
    matrix_unit::Sums sums[Q][ACROSS] = {};

    static __device__ __forceinline__ int own() {  // the first pixel of the wave
        return matrix_unit::LANES == 32 ? threadIdx.x / 32 % 2 * 32 : 0;
    }
    __device__ __forceinline__ void add(const Staged* filters, const Staged* patches, int filter,
                                        int pixel) {
        constexpr int PITCH = DEPTH + 8;
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16) {
            matrix_unit::Fragment left[Q], right[ACROSS];
#pragma unroll
            for (int i = 0; i < Q; ++i)
                left[i] = matrix_unit::fragment(filters + (filter + i * 16) * PITCH + d, PITCH);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
                right[j] = matrix_unit::fragment(patches + (pixel + own() + j * 16) * PITCH + d, PITCH);
#pragma unroll
            for (int i = 0; i < Q; ++i)
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) matrix_unit::multiply(sums[i][j], left[i], right[j]);
        }
    }
    __device__ __forceinline__ float value(int i, int j) const {
        using namespace matrix_unit;
        const int e = element_at(i % LANE_ROWS, j % LANE_COLUMNS);
        return sums[i / LANE_ROWS][j / LANE_COLUMNS][e];
    }
    __device__ __forceinline__ int filter(int i) const {
        using namespace matrix_unit;
        return i / LANE_ROWS * 16 + row_at(i % LANE_ROWS);
    }
    __device__ __forceinline__ int pixel(int j) const {
        using namespace matrix_unit;
        return own() + j / LANE_COLUMNS * 16 + column_at(j % LANE_COLUMNS);
    }
};

#else

// Filters and patches lie with the depth outside.
typedef float Staged;
template <int ROWS>
constexpr int TILE = DEPTH * (ROWS + 4);

template <int ROWS>
__device__ __forceinline__ void stage(Staged* tile, int row, int depth, const Pack& pack) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) tile[(depth + j) * (ROWS + 4) + row] = float(pack.at[j]);
}

// The part of 8 x 8 threads: each has 2 Q filters, in neighbouring pairs, and 8 pixels.
template <int Q>
struct Product {
    static constexpr int FILTERS = 2 * Q, COUNT = 8;  // of filters and pixels of this thread
    float sums[FILTERS][COUNT] = {};

    __device__ void add(const Staged* filters, const Staged* patches, int at_filter, int at_pixel) {
#pragma unroll 2  // all of them at once would take twice the registers
        for (int d = 0; d < DEPTH; ++d) {
            float left[FILTERS], right[COUNT];
#pragma unroll
            for (int i = 0; i < FILTERS; ++i)
                left[i] = filters[d * (32 * Q + 4) + at_filter + filter(i)];
#pragma unroll
            for (int j = 0; j < COUNT; ++j)
                right[j] = patches[d * (PIXELS + 4) + at_pixel + pixel(j)];
#pragma unroll
            for (int i = 0; i < FILTERS; ++i)
#pragma unroll
                for (int j = 0; j < COUNT; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }
    __device__ float value(int i, int j) const { return sums[i][j]; }
    __device__ int filter(int i) const { return i / 2 * 16 + threadIdx.x % 64 / 8 * 2 + i % 2; }
    __device__ int pixel(int j) const { return j * 8 + threadIdx.x % 8; }
};

#endif
