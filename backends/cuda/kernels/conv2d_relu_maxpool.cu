// Convolution, rectified and pooled without its own output in memory: a block computes what a tile
// of pooled pixels needs, 128 pixels of it and some filters at a time, as a product of gathered
// patches and filters on tensor cores (mma.sync): float32 as three products of TF32, which keep its
// precision, or as one. On Hopper, where float32 filters fit in shared memory, they stay there and
// nothing is gathered (see portkern/convolution.h). Types of 16 bits, where there is enough to do, are
// copied with their channels innermost (see portkern/channels_last.h), and the convolution is in memory;
// so also where it has few tiles, whose depth blocks share (see portkern/gathered.h), or few filters (see
// portkern/few_filters.h).
#define AT_ONCE 256  // knob: 128 256 512
#define POOLED_KB 32  // knob: 16 32 48
#define UNROLL 1  // knob: 1 2
#define TF32 0  // knob: 0 1
#define RESIDENT_FROM 500  // knob: 100 500 2000
#define REORDER_FROM 150  // knob: 0 150 300
#define FEW_FILTERS 8  // knob: 0 4 8
#include <portkern/channels_last.h>
#include <portkern/few_filters.h>
#include <portkern/gathered.h>
#include <portkern/pool.h>
#if defined(PORTKERN_HOPPER) && defined(PORTKERN_FLOAT32)
#define RESIDENT
#include <portkern/convolution.h>
#endif

// A block's pooled pixels, the convolution's that they need, and how many such blocks an image has.
struct Region {
    int rows, columns, height, width, across, down;
};

template <int Q, bool ALIGNED>
__global__ __launch_bounds__(THREADS, 2) void conv2d_relu_maxpool_kernel(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, Shape s, Region region) {
    constexpr int FILTERS = 32 * Q, COLUMNS = 4 * Q;
    __shared__ alignas(128) scalar_t patches[2][PIXELS * PITCH];
    __shared__ alignas(128) scalar_t filters[2][FILTERS * PITCH];
    __shared__ Tap taps[2][DEPTH];
    // The largest so far, as bits: from 0 on, numbers and their bits have the same order.
    extern __shared__ int pooled[];
    const int t = threadIdx.x, pixel = t % PIXELS, first = t / PIXELS * (DEPTH / 2);
    const int window = (int)s.window, pool_stride = (int)s.pool_stride;
    const int rows = region.rows, columns = region.columns, area = rows * columns;
    const int width = region.width, pixels = region.height * width;
    // Kept in shared memory and read again after each barrier, these cost no registers.
    __shared__ int row0, column0, image, filter0;
    if (t == 0) {
        const int tiles = region.across * region.down, tile = blockIdx.x % tiles;
        row0 = tile / region.across * rows;
        column0 = tile % region.across * columns;
        image = blockIdx.x / tiles % (int)s.n;
        filter0 = blockIdx.x / tiles / (int)s.n * FILTERS;
    }
    const int depth_all = (int)(s.c * s.kh * s.kw), steps = (depth_all + DEPTH - 1) / DEPTH;
    const int warp = t / 32, lane = t % 32, warp_pixel = warp / 2 * 32;
    const int warp_filter = warp % 2 * (FILTERS / 2);
    const auto filter_of = [&](int j) {
        return warp_filter + j / GROUP * GROUP * 4 + lane % 4 * GROUP + j % GROUP;
    };
    for (int e = t; e < FILTERS * area; e += THREADS) pooled[e] = 0;  // which rectifies
    __syncthreads();
    for (int pixel0 = 0; pixel0 < pixels; pixel0 += PIXELS) {
        const int at = pixel0 + pixel, stride = (int)s.stride, padding = (int)s.padding;
        const int above = (row0 * pool_stride + at / width) * stride - padding;
        const int top = at < pixels ? above : OUTSIDE;
        const int left = (column0 * pool_stride + at % width) * stride - padding;
        const scalar_t* corner = x + (image * s.c * s.h + top) * s.w + left;  // may lie outside
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
                const scalar_t* from = weight + (int64_t)(filter0 + row) * depth_all + depth;
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
        float sums[4][COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int64_t filter = filter0 + filter_of(j);
            const float start = filter < s.f ? float(bias[filter]) : 0.0f;
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i][j] = start;
        }
        list(0);
        __syncthreads();
        fetch(0);
        list(1);
        stage(0);
        __syncthreads();
        for (int step = 0; step < steps; ++step) {
            if (step + 1 < steps) fetch(step + 1);
            multiply(sums, patches[step % 2] + warp_pixel * PITCH,
                     filters[step % 2] + warp_filter * PITCH);
            if (step + 1 < steps) stage(step + 1);
            list(step + 2);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int from = pixel0 + warp_pixel + i * 8 + lane / 4;
            if (from >= pixels) continue;
            const int row = from / width, column = from % width;
#pragma unroll
            for (int j = 0; PARTS == 2 && j < COLUMNS; ++j) {
                const int64_t filter = filter0 + filter_of(j);
                if (!isnan(sums[i][j]) || filter >= s.f) continue;
                sums[i][j] = float(bias[filter]) +
                             anew(x, weight, s, image, filter,
                                  (row0 * pool_stride + row) * s.stride - s.padding,
                                  (column0 * pool_stride + column) * s.stride - s.padding);
            }
            int py = min(row / pool_stride, rows - 1);  // all windows that the pixel is in
            for (; py >= 0 && py * pool_stride + window > row; --py) {
                int px = min(column / pool_stride, columns - 1);
                for (; px >= 0 && px * pool_stride + window > column; --px)
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j) {
                        int* to = pooled + filter_of(j) * area + py * columns + px;
                        if (!(sums[i][j] <= 0.0f)) atomicMax(to, __float_as_int(fabsf(sums[i][j])));
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
           const Shape& s, cudaStream_t stream) {
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
            const int64_t cost = (groups * down * across + AT_ONCE - 1) / AT_ONCE *
                                 ((height * width + PIXELS - 1) / PIXELS);
            if (best.rows > 0 && cost > least) continue;
            least = cost;
            best = {(int)rows, (int)columns, (int)height, (int)width, (int)across, (int)down};
        }
    const unsigned blocks = (unsigned)(groups * best.down * best.across);
    const int bytes = (int)(best.rows * best.columns * bytes_each);
    const auto kernel = conv2d_relu_maxpool_kernel<Q, ALIGNED>;
    // More than 48 KB of shared memory has to be asked for.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<blocks, THREADS, bytes, stream>>>(x, weight, bias, y, s, best);
    return (int)cudaGetLastError();
}

#ifdef RESIDENT
// Each warpgroup takes some pooled pixels of a row at a time, of a block's N filters: it computes the
// rows of their windows one after another, and keeps the largest so far.
constexpr int POOLED = 32;
template <int N>
__global__ __launch_bounds__(convolution::THREADS, 1) void resident(
    const float* __restrict__ x, const float* __restrict__ weight, const float* bias,
    float* __restrict__ y, Shape s, const __grid_constant__ convolution::Plan p, int columns,
    int groups) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int first = blockIdx.x % groups * N;
    convolution::Block<N, !TF32> block(shared, p, weight, bias, first);
    const int px = block.thread % POOLED;
    const int window = (int)s.window, pool_stride = (int)s.pool_stride;
    const int across = ((int)s.ow + columns - 1) / columns, oh = (int)s.oh;
    const int tiles = (int)s.n * oh * across, stride = gridDim.x / groups * convolution::GROUPS;
    for (int tile = blockIdx.x / groups * convolution::GROUPS + block.group; tile < tiles;
         tile += stride) {
        const int64_t image = tile / (oh * across);
        const int row = tile / across % oh, column0 = tile % across * columns, column = column0 + px;
        const bool exists = px < columns && column < s.ow;
        float most[N / 4] = {};  // which rectifies
        for (int i = 0; i < window; ++i) {
            const int at = row * pool_stride + i;
            const float* sums = block.convolve(x + image * s.c * s.h * s.w, at, column0 * pool_stride);
            sums += block.thread / POOLED * convolution::PITCH + px * pool_stride;
            for (int j = 0; exists && j < window; ++j)
#pragma unroll
                for (int k = 0; k < N / 4; ++k)
                    asm("max.NaN.f32 %0, %0, %1;" : "+f"(most[k]) : "f"(sums[k * 4 * convolution::PITCH + j]));
        }
        if (!exists) continue;
#pragma unroll
        for (int k = 0; k < N / 4; ++k) {
            const int64_t filter = first + block.thread / POOLED + k * 4;
            if (filter < s.f)
                y[((image * s.f + filter) * s.oh + row) * s.ow + column] = most[k];
        }
    }
}

template <int N>
int launch_resident(const float* x, const float* weight, const float* bias, float* y,
                    const Shape& s, const convolution::Plan& p, int columns, cudaStream_t stream) {
    const int groups = (int)((s.f + N - 1) / N);
    cudaFuncSetAttribute(resident<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, p.bytes(N));
    resident<N><<<convolution::blocks(groups), convolution::THREADS, p.bytes(N), stream>>>(
        x, weight, bias, y, s, p, columns, groups);
    return (int)cudaGetLastError();
}

// Whether a row of pooled pixels suits, and so many of its columns: most of 64 pixels are of use.
bool plan(convolution::Plan& p, int& columns, const float* x, const Shape& s) {
    const int64_t height = (s.h + 2 * s.padding - s.kh) / s.stride + 1;
    const int64_t width = (s.w + 2 * s.padding - s.kw) / s.stride + 1;
    if (double(s.n) * s.f * height * width * s.c * s.kh * s.kw < RESIDENT_FROM * 1e6) return false;
    if (s.window > convolution::PIXELS || s.pool_stride > convolution::PIXELS) return false;
    if (!convolution::describe(p, x, s, height, width)) return false;
    const auto needed = [&](int64_t pooled) { return (int)((pooled - 1) * s.pool_stride + s.window); };
    int most = 0;
    while (most < s.ow && most < POOLED && p.divide(1, needed(most + 1))) ++most;
    if (most == 0) return false;
    const int64_t across = (s.ow + most - 1) / most;
    columns = (int)((s.ow + across - 1) / across);
    return p.divide(1, needed(columns)) && 2 * p.columns > convolution::PIXELS &&
           s.n * s.oh * across < 1 << 30;
}
#endif

extern "C" int conv2d_relu_maxpool(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                   scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                                   int64_t f, int64_t kh, int64_t kw, int64_t oh, int64_t ow,
                                   int64_t stride, int64_t padding, int64_t window,
                                   int64_t pool_stride, cudaStream_t stream) {
    if (n == 0 || f == 0 || oh == 0 || ow == 0) return 0;
    constexpr int64_t MOST = 1ll << 31;  // of an image's and a filter's elements: int counts them
    if (c * h * w >= MOST || c * kh * kw >= MOST) return (int)cudaErrorInvalidValue;
    const Shape shape = {n, c, h, w, f, kh, kw, oh, ow, stride, padding, window, pool_stride};
    Shape unpooled = shape;
    unpooled.oh = (h + 2 * padding - kh) / stride + 1, unpooled.ow = (w + 2 * padding - kw) / stride + 1;
    const double outputs = double(n) * f * unpooled.oh * unpooled.ow;
    constexpr int MOST_Q = PARTS == 2 ? 2 : 3;  // three, of two parts each, would not fit in registers
#ifndef PORTKERN_FLOAT32
    if (outputs < MOST && channels_last::pays(unpooled, REORDER_FROM, 32 * MOST_Q, outputs))
        return pooling::launch(y, shape, unpooled, stream, [&](scalar_t* to) {
            return channels_last::launch(x, weight, bias, to, unpooled, stream);
        });
#endif
    if (outputs < MOST && few_filters::suit(shape))
        return pooling::launch(y, shape, unpooled, stream, [&](scalar_t* to) {
            return few_filters::launch(x, weight, bias, to, unpooled, stream);
        });
#ifdef RESIDENT
    convolution::Plan p = {};
    int columns = 0;
    if (plan(p, columns, x, shape))
        return convolution::wide(f) ? launch_resident<96>(x, weight, bias, y, shape, p, columns, stream)
                                    : launch_resident<64>(x, weight, bias, y, shape, p, columns, stream);
#endif
    const Shared by(unpooled);
    // Where each of the convolution's outputs is in four windows or more, they would take longer to compare.
    if (outputs < MOST && (by.splits > 1 || window >= 2 * pool_stride))
        return pooling::launch(y, shape, unpooled, stream, [&](scalar_t* to) {
            return launch_gathered(x, weight, bias, to, unpooled, by, stream);
        });
    const bool aligned = (uintptr_t)weight % 16 == 0 && c * kh * kw % VEC == 0;
    const int64_t groups = (f + 32 * MOST_Q - 1) / (32 * MOST_Q);
    const int64_t each = (f + groups - 1) / groups;  // filters of a block
    const auto start = each > 64   ? aligned ? launch<MOST_Q, true> : launch<MOST_Q, false>
                       : each > 32 ? aligned ? launch<2, true> : launch<2, false>
                                   : aligned ? launch<1, true> : launch<1, false>;
    return start(x, weight, bias, y, shape, stream);
}
