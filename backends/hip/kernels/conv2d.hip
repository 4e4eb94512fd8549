// Convolution as a matrix product: a block gathers the patches of 128 output pixels, a slice of
// their depth at a time, and multiplies some filters with them, by FMA or, for halves on CDNA and
// NVIDIA, on matrix units. Each quarter of the threads computes 64 pixels of half of the filters. Where
// there are few tiles, blocks share the depth. On NVIDIA, where there is enough to do, halves are copied with
// their channels innermost (see portkern/channels_last.h).
#define AT_ONCE 512  // knob: 256 512 1024
#define FEW_FILTERS 8  // knob: 0 4 8
#define REORDER_FROM 150  // knob: 0 150 300
#include <portkern/few_filters.h>
#include <portkern/filter_product.h>
#ifdef TENSOR_CORES
#include <portkern/channels_last.h>
#endif

#ifdef TENSOR_CORES
constexpr int FULL = AT_ONCE / 2, WIDEST = 3;  // blocks that fill a GPU, and Q of the largest
constexpr int RESIDENT = 2;  // of them on a multiprocessor; FMAs need the registers
#else
constexpr int FULL = AT_ONCE, WIDEST = 4, RESIDENT = 0;
#endif
#ifdef __HIP_PLATFORM_NVIDIA__
constexpr int FILLING = AT_ONCE / 2;  // blocks from which on sharing the depth gains nothing
#else
constexpr int FILLING = AT_ONCE;
#endif

// A block computes 128 pixels of 32 Q filters, of `each` steps of the depth. Sums go to `parts`, one such
// output after another, or with the bias to y.
template <int Q, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, Q < 4 ? RESIDENT : 0) void conv2d_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, Shape s, int64_t tiles, int each,
    float* __restrict__ parts) {
    constexpr int FILTERS = 32 * Q, SHARE = (Q + 1) / 2;  // packs of filters per thread and step
    __shared__ alignas(16) Staged filters[TILE<FILTERS>], patches[TILE<PIXELS>];
    __shared__ Tap taps[2][DEPTH];
    __shared__ int64_t place[PIXELS];  // of each pixel in the output's first channel
    const int t = threadIdx.x, pixel = t % PIXELS, first = t / PIXELS * (DEPTH / 2);
    const int64_t filter0 = blockIdx.x / tiles * FILTERS;
    const int64_t at = blockIdx.x % tiles * PIXELS + pixel, plane = s.oh * s.ow;
    const int64_t image = at / plane, rest = at % plane;
    const int depth_all = (int)(s.c * s.kh * s.kw), begin = blockIdx.y * each;
    const int steps = min(begin + each, (depth_all + DEPTH - 1) / DEPTH);
    const bool exists = image < s.n;
    const int top = exists ? (int)(rest / s.ow * s.stride - s.padding) : OUTSIDE;
    const int left = (int)(rest % s.ow * s.stride - s.padding);
    const scalar_t* corner = x + (image * s.c * s.h + top) * s.w + left;  // may lie outside
    if (t < PIXELS) place[t] = exists ? image * s.f * plane + rest : -1;
    Pack next[2], next_filters[SHARE];
    const auto fetch = [&](int step) {
#pragma unroll
        for (int e = 0; e < 2 * VEC; ++e) {
            const Tap tap = taps[step % 2][first + e];
            const bool inside = (unsigned)(top + tap.i) < (unsigned)s.h &&
                                (unsigned)(left + tap.j) < (unsigned)s.w;
            next[e / VEC].at[e % VEC] = inside ? corner[tap.offset] : scalar_t(0.0f);
        }
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int row = (i * THREADS + t) / 4, depth = step * DEPTH + t % 4 * VEC;
            const int there = row < FILTERS && filter0 + row < s.f ? depth_all - depth : 0;
            next_filters[i] = load<ALIGNED>(weight + (filter0 + row) * depth_all + depth, there);
        }
    };
    const auto list = [&](int step) {
        if (t < DEPTH) taps[step % 2][t] = tap_of(s, step * DEPTH + t);
    };
    const int at_filter = t / 128 * (FILTERS / 2), at_pixel = t / 64 % 2 * 64;
    Product<Q> product;
    list(begin);
    __syncthreads();
    fetch(begin);
    for (int step = begin; step < steps; ++step) {
        stage<PIXELS>(patches, pixel, first, next[0]);
        stage<PIXELS>(patches, pixel, first + VEC, next[1]);
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int row = (i * THREADS + t) / 4;
            if (row < FILTERS) stage<FILTERS>(filters, row, t % 4 * VEC, next_filters[i]);
        }
        list(step + 1);
        __syncthreads();
        if (step + 1 < steps) fetch(step + 1);
        product.add(filters, patches, at_filter, at_pixel);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < product.COUNT; ++j) {
        const int64_t to = place[at_pixel + product.pixel(j)];
        if (to < 0) continue;
#pragma unroll
        for (int i = 0; i < product.FILTERS; ++i) {
            const int64_t filter = filter0 + at_filter + product.filter(i);
            if (filter >= s.f) continue;
            const float sum = product.value(i, j);
            if (parts) parts[blockIdx.y * (s.n * s.f * plane) + to + filter * plane] = sum;
            else y[to + filter * plane] = scalar_t(sum + float(bias[filter]));
        }
    }
}

template <bool ALIGNED>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
           const Shape& s, hipStream_t stream) {
    const int64_t tiles = (s.n * s.oh * s.ow + PIXELS - 1) / PIXELS;
    // Blocks come in rounds; one takes as long as its filters and, alike for all, its patches.
    int64_t q = 0, blocks = 0, least = 0;
    for (int64_t wide = 1; wide <= WIDEST; ++wide) {
        const int64_t all = tiles * ((s.f + 32 * wide - 1) / (32 * wide));
        const int64_t cost = (all + FULL - 1) / FULL * (wide + 1);
        if (q == 0 || cost <= least) least = cost, q = wide, blocks = all;
    }
    // All steps, unless there are too few blocks. Then so many that adding the parts does not take longer
    // than what is gained.
    constexpr int LEAST = 8;
    const int64_t steps = (s.c * s.kh * s.kw + DEPTH - 1) / DEPTH, wanted = FILLING / blocks;
    const int64_t most = wanted < steps / LEAST ? wanted : steps / LEAST;
    const int each = (int)(most > 1 ? (steps + most - 1) / most : steps);
    const int splits = each > 0 ? (int)((steps + each - 1) / each) : 1;
    const int64_t plane = s.oh * s.ow, count = s.n * s.f * plane;
    Scratch<float> parts(splits > 1 ? splits * count : 0, stream);
    if (parts.error) return (int)parts.error;
    const auto kernel = q == 1   ? conv2d_kernel<1, ALIGNED>
                        : q == 2 ? conv2d_kernel<2, ALIGNED>
                        : q == 3 ? conv2d_kernel<3, ALIGNED>
                                 : conv2d_kernel<WIDEST, ALIGNED>;
    kernel<<<dim3((unsigned)blocks, splits), THREADS, 0, stream>>>(x, weight, bias, y, s, tiles, each,
                                                                   parts.data);
    if (parts.data)
        few_filters::sum_parts<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            parts.data, bias, y, count, plane, s.f, splits);
    return (int)hipGetLastError();
}

extern "C" int conv2d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t n, int64_t c, int64_t h, int64_t w, int64_t f, int64_t kh,
                      int64_t kw, int64_t oh, int64_t ow, int64_t stride, int64_t padding,
                      hipStream_t stream) {
    if (n == 0 || f == 0 || oh == 0 || ow == 0) return 0;
    constexpr int64_t MOST = 1ll << 31;  // of an image's and a filter's elements: int counts them
    if (c * h * w >= MOST || c * kh * kw >= MOST) return (int)hipErrorInvalidValue;
    const Shape shape = {n, c, h, w, f, kh, kw, oh, ow, stride, padding};
#ifdef TENSOR_CORES
    if (channels_last::pays(shape, REORDER_FROM, 32 * WIDEST))
        return channels_last::launch(x, weight, bias, y, shape, stream);
#endif
    if (few_filters::suit(shape)) return few_filters::launch(x, weight, bias, y, shape, stream);
    const bool aligned = (uintptr_t)weight % 16 == 0 && c * kh * kw % VEC == 0;
    return aligned ? launch<true>(x, weight, bias, y, shape, stream)
                   : launch<false>(x, weight, bias, y, shape, stream);
}
