// Convolution as a product of patches, which a block gathers a slice of their depth at a time, and
// filters on tensor cores (mma.sync): float32 as three products of TF32, which keep its precision, or as
// one. Where there are few tiles, blocks share the depth. AT_ONCE, UNROLL and TF32 are the kernel's knobs.
#pragma once
#include <portkern/patches.h>
#include <portkern/tensor_cores.h>

constexpr int TURNS = UNROLL;  // no macro is expanded in a pragma
constexpr int THREADS = 256, PIXELS = 128;
constexpr int DEPTH = 4 * VEC;      // channels times places in the filter, per step
constexpr int PITCH = DEPTH + VEC;  // 8 neighbouring rows lie in different banks

// A pack of a filter, of which `there` elements exist. ALIGNED: all or none.
template <bool ALIGNED>
__device__ __forceinline__ void copy(scalar_t* to, const scalar_t* __restrict__ from, int there) {
    if constexpr (ALIGNED) {
        copy_async<16>(to, from, there > 0 ? 16 : 0);
    } else {
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            if constexpr (sizeof(scalar_t) == 4)
                copy_async<4>(to + j, from + (j < there ? j : 0), j < there ? 4 : 0);
            else
                to[j] = j < there ? from[j] : scalar_t(0.0f);
    }
}

// Patches and filters both lie with the depth inside. A warp multiplies 32 pixels with 4 COLUMNS
// filters: a lane has 4 pixels that lie 8 apart, lane / 4 the first, and pairs of filters: the first
// is pair lane % 4, the others lie 4 pairs apart. This is how mma.sync gives its results.
constexpr int GROUP = 2, PIECE = 16 / sizeof(scalar_t);  // elements of a row of 8 x 16 bytes

#ifdef PORTKERN_FLOAT32
constexpr int PARTS = TF32 ? 1 : 2;
#else
constexpr int PARTS = 1;
#endif

// A float as the sum of two numbers of TF32, each the nearest, of 11 bits; of the products of two
// such sums only low * low is left out, which is at most 2^-24 of the whole.
template <int N>
__device__ __forceinline__ void split(unsigned (&high)[N], unsigned (&low)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float x = __uint_as_float(high[i]);
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high[i]) : "f"(x));
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low[i]) : "f"(x - __uint_as_float(high[i])));
    }
}

// Tensor cores cut off what a sum has no room for: sums of few products, which ordinary additions
// then add up, keep the precision of float32.
template <int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[4][COLUMNS], const scalar_t* a,
                                         const scalar_t* b) {
    const int lane = threadIdx.x % 32;
    a += lane % 16 * PITCH + lane / 16 * PIECE;
    b += (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * PIECE;
#pragma unroll TURNS
    for (int d = 0; d < DEPTH; d += 2 * PIECE) {
        unsigned left[PARTS][2][4], right[PARTS][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            load_pieces(left[0][i], a + i * 16 * PITCH + d);
            if constexpr (PARTS == 2) split(left[0][i], left[1][i]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j % 4 == 0) {
                load_pieces(right[0], b + j * 4 * PITCH + d);
                if constexpr (PARTS == 2) split(right[0], right[1]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float *upper = sums[2 * i] + j, *lower = sums[2 * i + 1] + j;
                if constexpr (PARTS == 2) {
                    float few[2][2] = {};
                    mma(few[0], few[1], left[1][i], right[0] + j % 4);
                    mma(few[0], few[1], left[0][i], right[1] + j % 4);
                    mma(few[0], few[1], left[0][i], right[0] + j % 4);
#pragma unroll
                    for (int e = 0; e < 2; ++e) upper[e] += few[0][e], lower[e] += few[1][e];
                } else {
                    mma(upper, lower, left[0][i], right[0] + j % 4);
                }
            }
        }
    }
}

// The sum of output i, anew where parts of an infinity may have made a NaN.
__device__ __forceinline__ float finished(float sum, const scalar_t* x, const scalar_t* weight,
                                          const Shape& s, int64_t i) {
    return PARTS == 1 || !isnan(sum) ? sum : anew(x, weight, s, i);
}

// A block computes 128 pixels of 32 Q filters, of `each` steps of the depth. Sums go to `parts`, one
// such output after another, or with the bias to y.
template <int Q, bool ALIGNED>
__global__ __launch_bounds__(THREADS, 2) void conv2d_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, Shape s, int64_t tiles, int each,
    float* __restrict__ parts) {
    let_next_begin();
    constexpr int FILTERS = 32 * Q, COLUMNS = 4 * Q;
    __shared__ alignas(128) scalar_t patches[2][PIXELS * PITCH];
    __shared__ alignas(128) scalar_t filters[2][FILTERS * PITCH];
    __shared__ Tap taps[2][DEPTH];
    __shared__ int64_t place[PIXELS];  // of each pixel in the output's first channel
    const int t = threadIdx.x, pixel = t % PIXELS, first = t / PIXELS * (DEPTH / 2);
    // Kept in shared memory and read again after each barrier, these cost no registers.
    __shared__ int64_t filter0;
    __shared__ int begin, steps;
    const int depth_all = (int)(s.c * s.kh * s.kw);
    if (t == 0) {
        filter0 = blockIdx.x / tiles * FILTERS;
        begin = blockIdx.y * each;
        steps = min(begin + each, (depth_all + DEPTH - 1) / DEPTH);
    }
    const int64_t at = blockIdx.x % tiles * PIXELS + pixel, plane = s.oh * s.ow;
    const int64_t image = at / plane, rest = at % plane;
    const bool exists = image < s.n;
    const int top = exists ? (int)(rest / s.ow * s.stride - s.padding) : OUTSIDE;
    const int left = (int)(rest % s.ow * s.stride - s.padding);
    const scalar_t* corner = x + (image * s.c * s.h + top) * s.w + left;  // may lie outside
    if (t < PIXELS) place[t] = exists ? image * s.f * plane + rest : -1;
    const auto list = [&](int step) {
        if (t < DEPTH) taps[step % 2][t] = tap_of(s, step * DEPTH + t);
    };
    Pack next[2];
    const auto fetch = [&](int step) {
#pragma unroll
        for (int e = 0; e < 2 * VEC; ++e) {
            const Tap tap = taps[step % 2][first + e];
            const bool inside = (unsigned)(top + tap.i) < (unsigned)s.h &&
                                (unsigned)(left + tap.j) < (unsigned)s.w;
            next[e / VEC].at[e % VEC] = inside ? corner[tap.offset] : scalar_t(0.0f);
        }
#pragma unroll 1
        for (int row = t / 4; row < FILTERS; row += THREADS / 4) {  // 4 packs of each filter
            const int depth = step * DEPTH + t % 4 * VEC;
            const int there = filter0 + row < s.f ? depth_all - depth : 0;
            const scalar_t* from = weight + (filter0 + row) * depth_all + depth;
            copy<ALIGNED>(&filters[step % 2][row * PITCH + t % 4 * VEC],
                          there > 0 ? from : weight, there);
        }
    };
    const auto stage = [&](int step) {
        Pack* to = reinterpret_cast<Pack*>(&patches[step % 2][pixel * PITCH + first]);
        to[0] = next[0];
        to[1] = next[1];
        asm volatile("cp.async.wait_all;" ::: "memory");
    };
    const int warp = t / 32, lane = t % 32, warp_pixel = warp / 2 * 32;
    const int warp_filter = warp % 2 * (FILTERS / 2);
    float sums[4][COLUMNS] = {};
    __syncthreads();
    list(begin);
    __syncthreads();
    fetch(begin);
    list(begin + 1);
    stage(begin);
    __syncthreads();
    for (int step = begin; step < steps; ++step) {
        if (step + 1 < steps) fetch(step + 1);
        multiply(sums, patches[step % 2] + warp_pixel * PITCH,
                 filters[step % 2] + warp_filter * PITCH);
        if (step + 1 < steps) stage(step + 1);
        list(step + 2);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int64_t to = place[warp_pixel + i * 8 + lane / 4];
        if (to < 0) continue;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int64_t filter =
                filter0 + warp_filter + j / GROUP * GROUP * 4 + lane % 4 * GROUP + j % GROUP;
            if (filter >= s.f) continue;
            if (parts) parts[blockIdx.y * (s.n * s.f * plane) + to + filter * plane] = sums[i][j];
            else
                y[to + filter * plane] =
                    scalar_t(finished(sums[i][j], x, weight, s, to + filter * plane) + float(bias[filter]));
        }
    }
}

// What blocks that share the depth have of each output, in their order.
__global__ __launch_bounds__(THREADS) void sum_parts(const scalar_t* __restrict__ x,
                                                     const scalar_t* __restrict__ weight,
                                                     const scalar_t* __restrict__ bias,
                                                     const float* parts,
                                                     scalar_t* __restrict__ y, Shape s, int splits) {
    wait_for_previous();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, plane = s.oh * s.ow;
    const int64_t count = s.n * s.f * plane;
    if (i >= count) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < splits; ++part) sum += parts[part * count + i];
    const int64_t filter = count >> 32 ? i / plane % s.f : (unsigned)i / (unsigned)plane % (unsigned)s.f;
    y[i] = scalar_t(finished(sum, x, weight, s, i) + float(bias[filter]));
}

constexpr int MOST_FILTERS = 96;  // of a block

// How a GPU is filled: blocks of 32 Q filters each, which have `each` steps of the depth.
struct Shared {
    int64_t q = 0, blocks = 0, tiles;
    int each, splits;

    explicit Shared(const Shape& s) : tiles((s.n * s.oh * s.ow + PIXELS - 1) / PIXELS) {
        // Blocks come in rounds; one takes as long as its filters and, alike for all, its patches.
        int64_t least = 0;
        for (int64_t wide = 1; 32 * wide <= MOST_FILTERS; ++wide) {
            const int64_t all = tiles * ((s.f + 32 * wide - 1) / (32 * wide));
            const int64_t cost = (all + AT_ONCE - 1) / AT_ONCE * (wide + 1);
            if (q == 0 || cost <= least) least = cost, q = wide, blocks = all;
        }
        // All steps, unless there are too few blocks. Then so many that a second kernel does not take
        // longer than what is gained.
        constexpr int LEAST = 8;
        const int64_t steps = (s.c * s.kh * s.kw + DEPTH - 1) / DEPTH, wanted = AT_ONCE / blocks;
        const int64_t parts = wanted < steps / LEAST ? wanted : steps / LEAST;
        each = (int)(parts > 1 ? (steps + parts - 1) / parts : steps);
        splits = each > 0 ? (int)((steps + each - 1) / each) : 1;
    }
};

template <bool ALIGNED>
int launch_gathered(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                    const Shape& s, const Shared& by, cudaStream_t stream) {
    const int64_t count = s.n * s.f * s.oh * s.ow;
    Scratch<float> parts(by.splits > 1 ? by.splits * count : 0, stream);
    if (parts.error) return (int)parts.error;
    const auto kernel = by.q == 1   ? conv2d_kernel<1, ALIGNED>
                        : by.q == 2 ? conv2d_kernel<2, ALIGNED>
                                    : conv2d_kernel<3, ALIGNED>;
    kernel<<<dim3((unsigned)by.blocks, by.splits), THREADS, 0, stream>>>(x, weight, bias, y, s, by.tiles,
                                                                         by.each, parts.data);
    if (parts.data)
        launch_next(sum_parts, (count + THREADS - 1) / THREADS, THREADS, stream, x, weight, bias, parts.data, y, s,
                    by.splits);
    return (int)cudaGetLastError();
}

inline int launch_gathered(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                           const Shape& s, const Shared& by, cudaStream_t stream) {
    const bool aligned = (uintptr_t)weight % 16 == 0 && s.c * s.kh * s.kw % VEC == 0;
    return (aligned ? launch_gathered<true> : launch_gathered<false>)(x, weight, bias, y, s, by, stream);
}
