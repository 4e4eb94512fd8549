// Convolution, rectified and pooled without its own output in memory: a block computes what a tile
// of pooled pixels needs, 128 pixels of it and some filters at a time, as a product of filters and
// gathered patches, by FMA or, for halves on CDNA and NVIDIA, on matrix units. Each quarter of the threads
// computes 64 pixels of half of the filters. On NVIDIA, where there is enough to do, halves are copied with
// their channels innermost (see portkern/channels_last.h), and the convolution is in memory.
#define AT_ONCE 512  // knob: 256 512 1024
#define POOLED_KB 12  // knob: 8 12 16
#define FEW_FILTERS 8  // knob: 0 4 8
#define REORDER_FROM 150  // knob: 0 150 300
#include <portkern/few_filters.h>
#include <portkern/filter_product.h>
#include <portkern/pool.h>
#ifdef TENSOR_CORES
#include <portkern/channels_last.h>
#endif

#ifdef TENSOR_CORES
constexpr int FULL = AT_ONCE / 2, WIDEST = 2;  // blocks that fill a GPU, and Q of the largest
constexpr int RESIDENT = 2;  // of them on a multiprocessor; FMAs need the registers
#else
constexpr int FULL = AT_ONCE, WIDEST = 3, RESIDENT = 0;
#endif

// A block's pooled pixels, the convolution's that they need, and how many such blocks an image has.
struct Region {
    int rows, columns, height, width, across, down;
};

template <int Q, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, Q < 3 ? RESIDENT : 0) void conv2d_relu_maxpool_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, Shape s, Region region) {
    constexpr int FILTERS = 32 * Q, SHARE = (Q + 1) / 2;  // packs of filters per thread and step
    __shared__ alignas(16) Staged filters[TILE<FILTERS>], patches[TILE<PIXELS>];
    __shared__ Tap taps[2][DEPTH];
    __shared__ float start[FILTERS];
    // The largest so far, as bits: from 0 on, numbers and their bits have the same order.
    extern __shared__ int pooled[];
    const int t = threadIdx.x, pixel = t % PIXELS, first = t / PIXELS * (DEPTH / 2);
    const int window = (int)s.window, pool_stride = (int)s.pool_stride;
    const int rows = region.rows, columns = region.columns, area = rows * columns;
    const int width = region.width, pixels = region.height * width;
    const int tiles = region.across * region.down, tile = blockIdx.x % tiles;
    const int row0 = tile / region.across * rows, column0 = tile % region.across * columns;
    const int64_t image = blockIdx.x / tiles % s.n, filter0 = blockIdx.x / tiles / s.n * FILTERS;
    const int depth_all = (int)(s.c * s.kh * s.kw), steps = (depth_all + DEPTH - 1) / DEPTH;
    const int at_filter = t / 128 * (FILTERS / 2), at_pixel = t / 64 % 2 * 64;
    if (t < FILTERS) start[t] = filter0 + t < s.f ? float(bias[filter0 + t]) : 0.0f;
    for (int e = t; e < FILTERS * area; e += THREADS) pooled[e] = 0;  // which rectifies
    for (int pixel0 = 0; pixel0 < pixels; pixel0 += PIXELS) {
        const int at = pixel0 + pixel, stride = (int)s.stride, padding = (int)s.padding;
        const int above = (row0 * pool_stride + at / width) * stride - padding;
        const int top = at < pixels ? above : OUTSIDE;
        const int left = (column0 * pool_stride + at % width) * stride - padding;
        const scalar_t* corner = x + (image * s.c * s.h + top) * s.w + left;  // may lie outside
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
                const scalar_t* from = weight + (filter0 + row) * depth_all + depth;
                next_filters[i] = load<ALIGNED>(from, there);
            }
        };
        const auto list = [&](int step) {
            if (t < DEPTH) taps[step % 2][t] = tap_of(s, step * DEPTH + t);
        };
        Product<Q> product;
        list(0);
        __syncthreads();
        fetch(0);
        for (int step = 0; step < steps; ++step) {
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
            const int from = pixel0 + at_pixel + product.pixel(j);
            if (from >= pixels) continue;
            const int row = from / width, column = from % width;
            int py = min(row / pool_stride, rows - 1);  // all windows that the pixel is in
            for (; py >= 0 && py * pool_stride + window > row; --py) {
                int px = min(column / pool_stride, columns - 1);
                for (; px >= 0 && px * pool_stride + window > column; --px)
#pragma unroll
                    for (int i = 0; i < product.FILTERS; ++i) {
                        const int filter = at_filter + product.filter(i);
                        const float value = product.value(i, j) + start[filter];
                        int* to = pooled + filter * area + py * columns + px;
                        if (!(value <= 0.0f)) atomicMax(to, __float_as_int(fabsf(value)));
                    }
            }
        }
    }
    __syncthreads();
    for (int e = t; e < FILTERS * area; e += THREADS) {
        const int64_t filter = filter0 + e / area;
        const int row = row0 + e % area / columns, column = column0 + e % columns;
        if (filter < s.f && row < s.oh && column < s.ow)
            y[((image * s.f + filter) * s.oh + row) * s.ow + column] =
                scalar_t(__int_as_float(pooled[e]));
    }
}

template <int Q, bool ALIGNED>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
           const Shape& s, hipStream_t stream) {
    constexpr int64_t bytes_each = 32 * Q * sizeof(int), most = POOLED_KB * 1024 / bytes_each;
    const int64_t groups = s.n * ((s.f + 32 * Q - 1) / (32 * Q));
    // Blocks come in rounds; one takes as long as it has pixels to compute, 128 at a time.
    Region best = {};
    int64_t least = 0;
    for (int64_t rows = 1; rows <= s.oh && rows <= most; ++rows)
        for (int64_t columns = 1; columns <= s.ow && rows * columns <= most; ++columns) {
            const int64_t down = (s.oh + rows - 1) / rows, across = (s.ow + columns - 1) / columns;
            const int64_t height = (rows - 1) * s.pool_stride + s.window;
            const int64_t width = (columns - 1) * s.pool_stride + s.window;
            const int64_t cost = (groups * down * across + FULL - 1) / FULL *
                                 ((height * width + PIXELS - 1) / PIXELS);
            if (best.rows > 0 && cost > least) continue;
            least = cost;
            best = {(int)rows, (int)columns, (int)height, (int)width, (int)across, (int)down};
        }
    const unsigned blocks = (unsigned)(groups * best.down * best.across);
    const int bytes = (int)(best.rows * best.columns * bytes_each);
    conv2d_relu_maxpool_kernel<Q, ALIGNED>
        <<<blocks, THREADS, bytes, stream>>>(x, weight, bias, y, s, best);
    return (int)hipGetLastError();
}

extern "C" int conv2d_relu_maxpool(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                   scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                                   int64_t f, int64_t kh, int64_t kw, int64_t oh, int64_t ow,
                                   int64_t stride, int64_t padding, int64_t window,
                                   int64_t pool_stride, hipStream_t stream) {
    if (n == 0 || f == 0 || oh == 0 || ow == 0) return 0;
    constexpr int64_t MOST = 1ll << 31;  // of an image's and a filter's elements: int counts them
    if (c * h * w >= MOST || c * kh * kw >= MOST) return (int)hipErrorInvalidValue;
    const Shape shape = {n, c, h, w, f, kh, kw, oh, ow, stride, padding, window, pool_stride};
    Shape unpooled = shape;
    unpooled.oh = (h + 2 * padding - kh) / stride + 1, unpooled.ow = (w + 2 * padding - kw) / stride + 1;
    const double outputs = double(n) * f * unpooled.oh * unpooled.ow;
#ifdef TENSOR_CORES
    if (outputs < MOST && channels_last::pays(unpooled, REORDER_FROM, 32 * WIDEST, outputs))
        return pooling::launch(y, shape, unpooled, stream, [&](scalar_t* to) {
            return channels_last::launch(x, weight, bias, to, unpooled, stream);
        });
#endif
    if (few_filters::suit(shape) && outputs < MOST)
        return pooling::launch(y, shape, unpooled, stream, [&](scalar_t* to) {
            return few_filters::launch(x, weight, bias, to, unpooled, stream);
        });
    const bool aligned = (uintptr_t)weight % 16 == 0 && c * kh * kw % VEC == 0;
    constexpr int64_t FILTERS = 32 * WIDEST;
    const int64_t groups = (f + FILTERS - 1) / FILTERS;
    const int64_t each = (f + groups - 1) / groups;  // filters of a block
    const auto start = each > 64   ? aligned ? launch<WIDEST, true> : launch<WIDEST, false>
                       : each > 32 ? aligned ? launch<2, true> : launch<2, false>
                                   : aligned ? launch<1, true> : launch<1, false>;
    return start(x, weight, bias, y, shape, stream);
}
