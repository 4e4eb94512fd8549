// Convolution with few filters, of which a tile of a matrix product would be mostly empty: a thread has a
// pixel of all of them, and reads its patch where it lies. Where there are few pixels, blocks share the
// depth. FEW_FILTERS is the kernel's knob.
#pragma once
#include <portkern/next_kernel.h>
#include <portkern/patches.h>

namespace few_filters {

constexpr int THREADS = 256, FILLING = 1024, LEAST = 128, AHEAD = 8;

// Sums of `each` rows of the depth, for F filters. They go to `parts`, one such output after another, or
// with the bias to y. Sums of a block's rows are added up, which rounds less than one sum of all.
template <int F>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, F > 4 ? 2 : 4) void convolve(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, Shape s, int each,
    float* __restrict__ parts) {
    let_next_begin();
    __shared__ Tap taps[THREADS];
    __shared__ Some<F, float> filters[THREADS];
    const int t = threadIdx.x, depth_all = (int)(s.c * s.kh * s.kw);
    const int64_t at = (int64_t)blockIdx.x * THREADS + t, plane = s.oh * s.ow;
    const int64_t image = at / plane, pixel = at % plane;
    const int top = image < s.n ? (int)(pixel / s.ow * s.stride - s.padding) : OUTSIDE;
    const int left = (int)(pixel % s.ow * s.stride - s.padding);
    const scalar_t* corner = x + (image * s.c * s.h + top) * s.w + left;  // may lie outside
    const int begin = blockIdx.y * each, end = min(begin + each, depth_all);
    float totals[F] = {};
    for (int first = begin; first < end; first += THREADS) {
        __syncthreads();
        const int own = first + t;
        taps[t] = tap_of(s, own < end ? own : depth_all);
#pragma unroll
        for (int f = 0; f < F; ++f)
            filters[t].at[f] = own < end && f < s.f ? float(weight[(int64_t)f * depth_all + own]) : 0.0f;
        __syncthreads();
        float sums[F] = {};
        for (int d = 0; d < min(THREADS, end - first); d += AHEAD) {
            float values[AHEAD];
#pragma unroll
            for (int e = 0; e < AHEAD; ++e) {
                const Tap tap = taps[d + e];
                const bool inside = (unsigned)(top + tap.i) < (unsigned)s.h &&
                                    (unsigned)(left + tap.j) < (unsigned)s.w;
                values[e] = inside ? float(corner[tap.offset]) : 0.0f;
            }
#pragma unroll
            for (int e = 0; e < AHEAD; ++e) {
                const Some<F, float> filter = filters[d + e];
#pragma unroll
                for (int f = 0; f < F; ++f) sums[f] = fmaf(values[e], filter.at[f], sums[f]);
            }
        }
#pragma unroll
        for (int f = 0; f < F; ++f) totals[f] += sums[f];
    }
    if (image >= s.n) return;
    for (int f = 0; f < F && f < s.f; ++f) {
        const int64_t to = (image * s.f + f) * plane + pixel;
        if (parts) parts[blockIdx.y * (s.n * s.f * plane) + to] = totals[f];
        else y[to] = scalar_t(totals[f] + float(bias[f]));
    }
}

// What blocks that share the depth have of each output, in their order.
__global__ __launch_bounds__(THREADS) void sum_parts(const float* parts,
                                                     const scalar_t* __restrict__ bias,
                                                     scalar_t* __restrict__ y, int64_t count,
                                                     int64_t plane, int64_t f, int splits) {
    wait_for_previous();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < splits; ++part) sum += parts[part * count + i];
    y[i] = scalar_t(sum + float(bias[i / plane % f]));
}

// Matrix units are worth it from half as many filters of 16 bits on.
constexpr int MOST = sizeof(scalar_t) == 2 ? FEW_FILTERS / 2 : FEW_FILTERS;
inline bool suit(const Shape& s) { return s.f <= MOST; }

template <int F>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                  const Shape& s, cudaStream_t stream) {
    const int64_t plane = s.oh * s.ow, count = s.n * s.f * plane, depth = s.c * s.kh * s.kw;
    const int64_t blocks = (s.n * plane + THREADS - 1) / THREADS, wanted = FILLING / blocks;
    const int64_t most = wanted < depth / LEAST ? wanted : depth / LEAST;
    const int each = (int)(most > 1 ? (depth + most - 1) / most : depth);
    const int splits = each > 0 ? (int)((depth + each - 1) / each) : 1;
    Scratch<float> parts(splits > 1 ? splits * count : 0, stream);
    if (parts.error) return (int)parts.error;
    convolve<F><<<dim3((unsigned)blocks, splits), THREADS, 0, stream>>>(x, weight, bias, y, s, each,
                                                                        parts.data);
    if (parts.data)
        launch_next(sum_parts, (count + THREADS - 1) / THREADS, THREADS, stream, parts.data, bias, y, count,
                    plane, s.f, splits);
    return (int)cudaGetLastError();
}

inline int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                  const Shape& s, cudaStream_t stream) {
    const auto start = s.f <= 1 ? launch<1> : s.f <= 2 ? launch<2> : s.f <= 4 ? launch<4> : launch<8>;
    return start(x, weight, bias, y, s, stream);
}

}  // namespace few_filters
