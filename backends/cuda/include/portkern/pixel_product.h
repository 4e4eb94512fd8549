// Float32 convolution as a product of filters and patches on tensor cores (mma.sync), three products of TF32
// that keep its precision: a block has some filters and some pixels. Both come by cp.async, some steps
// ahead, patches an element at a time, side by side for neighbouring pixels. Where there are few blocks, they
// share the depth.
#pragma once
#include <portkern/gathered.h>
#include <portkern/multiprocessors.h>

namespace pixels {
constexpr int DEPTH = 32, STEPS = 4, PITCH_A = DEPTH + 4;  // of a step; on their way; 8 rows lie in other banks

template <int F, int P, int WF, int WP>
struct Tile {
    static constexpr int FILTERS = F, PIXELS = P, ROWS = WF / 16, COLUMNS = WP / 8, DOWN = F / WF;
    static constexpr int THREADS = F / WF * (P / WP) * 32, PITCH_B = P + 8;
    static constexpr int A = F * PITCH_A, STAGE = A + DEPTH * PITCH_B, BYTES = STEPS * STAGE * 4;
};

// POINT: filters are of one element, without padding. `aligned`: they are whole packs.
template <class T, bool POINT>
__global__ __launch_bounds__(T::THREADS, T::THREADS > 128 ? 2 : 3) void conv2d_pixels(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, const Shape s, bool aligned, int across, int tiles, int each,
    float* __restrict__ parts) {
    let_next_begin();
    extern __shared__ __align__(128) unsigned char shared[];
    float* const stages = reinterpret_cast<float*>(shared);
    __shared__ Tap taps[POINT ? 1 : STEPS + 1][POINT ? 1 : DEPTH];
    __shared__ int64_t place[T::PIXELS];  // of each pixel in the output's first channel
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const int filter0 = tile / across * T::FILTERS;
    const int plane = (int)(s.oh * s.ow), field = (int)(s.h * s.w), all = (int)(s.c * s.kh * s.kw);
    const int first = split * each, steps = min(each, (all + DEPTH - 1) / DEPTH - first);
    const int pixel = t % T::PIXELS;
    const int64_t at = (int64_t)(tile % across) * T::PIXELS + pixel;
    const int image = (int)(at / plane), rest = (int)(at - (int64_t)image * plane);
    const bool exists = image < s.n;
    const int row = rest / (int)s.ow, top = exists ? row * (int)s.stride - (int)s.padding : OUTSIDE;
    const int left = (rest - row * (int)s.ow) * (int)s.stride - (int)s.padding;
    const float* const corner = x + ((int64_t)image * s.c * s.h + top) * s.w + left;  // may lie outside
    if (t < T::PIXELS) place[t] = exists ? (int64_t)image * s.f * plane + rest : -1;
    constexpr int TALL = T::THREADS / T::PIXELS;  // rows of the depth brought at once
    const int own = t / T::PIXELS;
    const auto list = [&](int step) {
        if constexpr (!POINT)
            if (t < DEPTH) taps[step % (STEPS + 1)][t] = tap_of(s, (first + step) * DEPTH + t);
    };
    const auto fetch = [&](int step) {
        if (step < steps) {
            float* const to = stages + step % STEPS * T::STAGE;
            const int depth0 = (first + step) * DEPTH;
#pragma unroll
            for (int i = 0; i < T::FILTERS * (DEPTH / 4) / T::THREADS; ++i) {
                const int p = i * T::THREADS + t, r = p / (DEPTH / 4), d = p % (DEPTH / 4) * 4;
                const int there = filter0 + r < s.f ? all - depth0 - d : 0;
                const float* from = weight + (int64_t)(filter0 + r) * all + depth0 + d;
                if (aligned) copy<true>(to + r * PITCH_A + d, there > 0 ? from : weight, there);
                else copy<false>(to + r * PITCH_A + d, there > 0 ? from : weight, there);
            }
            float* const beside = to + T::A + pixel;
#pragma unroll
            for (int i = 0; i < DEPTH / TALL; ++i) {
                const int d = i * TALL + own;
                bool inside;
                const float* from;
                if constexpr (POINT) {
                    inside = exists && depth0 + d < all;
                    from = corner + (int64_t)(depth0 + d) * field;
                } else {
                    const Tap tap = taps[step % (STEPS + 1)][d];
                    inside = (unsigned)(top + tap.i) < (unsigned)s.h && (unsigned)(left + tap.j) < (unsigned)s.w;
                    from = corner + tap.offset;
                }
                copy_async<4>(beside + d * T::PITCH_B, inside ? from : x, inside ? 4 : 0);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    if constexpr (!POINT) {
        for (int i = 0; i < STEPS; ++i) list(i);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < STEPS - 1; ++i) fetch(i);
    const int warp_filter = warp % T::DOWN * (T::ROWS * 16), warp_pixel = warp / T::DOWN * (T::COLUMNS * 8);
    float sums[T::ROWS][T::COLUMNS][4] = {};
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STEPS - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + STEPS - 1);
        list(step + STEPS);
        const float* a = stages + step % STEPS * T::STAGE + (warp_filter + lane % 16) * PITCH_A + lane / 16 * 4;
        const float* b = stages + step % STEPS * T::STAGE + T::A + lane % 4 * T::PITCH_B + warp_pixel + lane / 4;
        float few[T::ROWS][T::COLUMNS][4];  // of products that ordinary additions then add up
#pragma unroll
        for (int d = 0; d < DEPTH; d += 8) {
            unsigned whole[4], high[T::ROWS][4], low[T::ROWS][4];
#pragma unroll
            for (int i = 0; i < T::ROWS; ++i) {
                load_pieces(whole, a + i * 16 * PITCH_A + d);
                split_tf32(high[i], low[i], whole);
            }
#pragma unroll
            for (int j = 0; j < T::COLUMNS; j += 2) {
                unsigned right[4], right_high[4], right_low[4];
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    right[e] = __float_as_uint(b[(d + e % 2 * 4) * T::PITCH_B + (j + e / 2) * 8]);
                split_tf32(right_high, right_low, right);
#pragma unroll
                for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (d == 0) mma_anew(few[i][j + e], low[i], right_high + e * 2);
                        else mma(few[i][j + e], few[i][j + e] + 2, low[i], right_high + e * 2);
#pragma unroll
                for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
                    for (int e = 0; e < 2; ++e) mma(few[i][j + e], few[i][j + e] + 2, high[i], right_low + e * 2);
#pragma unroll
                for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
                    for (int e = 0; e < 2; ++e) mma(few[i][j + e], few[i][j + e] + 2, high[i], right_high + e * 2);
            }
        }
#pragma unroll
        for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
            for (int j = 0; j < T::COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] += few[i][j][e];
    }
    if (steps <= 0) __syncthreads();  // without channels nobody has waited for the places
    float* const part = parts + split * (s.n * s.f * plane);
#pragma unroll
    for (int j = 0; j < T::COLUMNS; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int64_t to = place[warp_pixel + j * 8 + lane % 4 * 2 + e];
            if (to < 0) continue;
#pragma unroll
            for (int i = 0; i < T::ROWS * 2; ++i) {
                const int filter = filter0 + warp_filter + i * 8 + lane / 4;
                if (filter >= s.f) continue;
                const int64_t index = to + (int64_t)filter * plane;
                const float sum = sums[i / 2][j][i % 2 * 2 + e];
                if (parts) part[index] = sum;
                else y[index] = finished(sum, x, weight, s, index) + bias[filter];
            }
        }
}

template <class T, bool POINT>
int launch_tiles(const float* x, const float* weight, const float* bias, float* y, const Shape& s, int64_t splits,
                 cudaStream_t stream) {
    const int64_t count = s.n * s.f * s.oh * s.ow, steps = (s.c * s.kh * s.kw + DEPTH - 1) / DEPTH;
    const int across = (int)((s.n * s.oh * s.ow + T::PIXELS - 1) / T::PIXELS);
    const int tiles = across * (int)((s.f + T::FILTERS - 1) / T::FILTERS);
    const int64_t each = (steps + splits - 1) / splits, blocks = steps > 0 ? (steps + each - 1) / each : 1;
    Scratch<float> parts(blocks > 1 ? blocks * count : 0, stream);
    if (parts.error) return (int)parts.error;
    const bool aligned = (uintptr_t)weight % 16 == 0 && s.c * s.kh * s.kw % 4 == 0;
    const auto kernel = conv2d_pixels<T, POINT>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::BYTES);
    kernel<<<(unsigned)(tiles * blocks), T::THREADS, T::BYTES, stream>>>(x, weight, bias, y, s, aligned, across, tiles,
                                                                         (int)each, parts.data);
    if (parts.data)
        launch_next(sum_parts, (count + THREADS - 1) / THREADS, THREADS, stream, x, weight, bias, parts.data, y, s,
                    (int)blocks);
    return (int)cudaGetLastError();
}

using Small = Tile<32, 64, 32, 16>;
using Middle = Tile<64, 64, 32, 32>;

// Tiles of this kind: in how many parts they divide their depth, and about how many microseconds that takes on
// an H200, whose multiprocessors a step takes so long, alone or beside another block's.
struct Way {
    int (*launch)(const float*, const float*, const float*, float*, const Shape&, int64_t, cudaStream_t);
    int64_t splits;
    double time;
};

template <class T, bool POINT>
Way way(const Shape& s) {
    constexpr double ALONE = T::FILTERS == 32 ? (POINT ? 0.75 : 1.4) : POINT ? 1.15 : 1.65;
    constexpr double BESIDE = T::FILTERS == 32 ? 0.75 : 1.1, ADD = 2.5, ADDED = 1e-5;
    constexpr int64_t LEAST = 3, FILL = T::FILTERS == 32 ? 2 : 4;  // steps of a part; those it takes to begin and end
    const int64_t pixels = s.n * s.oh * s.ow, steps = (s.c * s.kh * s.kw + DEPTH - 1) / DEPTH;
    const int64_t tiles = (pixels + T::PIXELS - 1) / T::PIXELS * ((s.f + T::FILTERS - 1) / T::FILTERS);
    const int64_t at_once = multiprocessors();
    Way best = {launch_tiles<T, POINT>, 1, 0};
    for (int64_t splits = 1; splits == 1 || (splits * LEAST <= steps && tiles * (splits - 1) < 2 * at_once); ++splits) {
        const int64_t each = (steps + splits - 1) / splits, rounds = (tiles * splits + at_once - 1) / at_once;
        const double turn = double(each + FILL), alone = turn * ALONE, beside = double(rounds) * turn * BESIDE;
        const double add = splits > 1 ? ADD + ADDED * double(pixels * s.f) : 0.0;
        const double time = (alone > beside ? alone : beside) + add;
        if (splits == 1 || time < best.time) best.splits = splits, best.time = time;
    }
    return best;
}

template <bool POINT>
Way choose_of(const Shape& s) {
    const Way small = way<Small, POINT>(s), middle = way<Middle, POINT>(s);
    return small.time < middle.time ? small : middle;
}

inline Way choose(const Shape& s) {
    return s.kh * s.kw == 1 && s.padding == 0 ? choose_of<true>(s) : choose_of<false>(s);
}
}  // namespace pixels
