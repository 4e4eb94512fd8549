// Convolution as a matrix product of filters and patches on tensor cores (mma.sync), float32 as three
// products of TF32, which keep its precision, or as one. Where there is enough to do, images are copied with
// their channels innermost (see portkern/channels_last.h). Elsewhere a block gathers the patches of some
// output pixels, a slice of their depth at a time (see portkern/pixel_product.h for float32, and
// portkern/gathered.h). On Hopper, where float32 filters fit in shared memory, they stay there and nothing is
// gathered (see portkern/convolution.h). Few filters make no tile (see portkern/few_filters.h).
#define AT_ONCE 256  // knob: 128 256 512
#define UNROLL 1  // knob: 1 2
#define TF32 0  // knob: 0 1
#define RESIDENT_FROM 500  // knob: 100 500 2000
#define RESIDENT_CHANNELS 16  // knob: 4 16 64
#define REORDER_FROM 150  // knob: 0 150 300
#define FEW_FILTERS 8  // knob: 0 4 8
#ifdef PORTKERN_FLOAT32
#define CHANNELS_LAST_FLOAT32
#endif
#include <portkern/channels_last.h>
#include <portkern/few_filters.h>
#include <portkern/gathered.h>
#ifdef PORTKERN_FLOAT32
#include <portkern/pixel_product.h>
#endif
#if defined(PORTKERN_HOPPER) && defined(PORTKERN_FLOAT32)
#define RESIDENT
#include <portkern/convolution.h>
#endif

#ifdef RESIDENT
// Each warpgroup takes a tile of pixels at a time, of a block's N filters.
template <int N>
__global__ __launch_bounds__(convolution::THREADS, 1) void conv2d_resident(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, Shape s, const __grid_constant__ convolution::Plan p, int groups) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int first = blockIdx.x % groups * N;
    convolution::Block<N, !TF32> block(shared, p, weight, bias, first);
    const int pixel = block.thread % convolution::PIXELS;
    const int across = (p.ow + p.columns - 1) / p.columns, down = (p.oh + p.rows - 1) / p.rows;
    const int tiles = (int)s.n * down * across, stride = gridDim.x / groups * convolution::GROUPS;
    for (int tile = blockIdx.x / groups * convolution::GROUPS + block.group; tile < tiles;
         tile += stride) {
        const int64_t image = tile / (down * across);
        const int row0 = tile / across % down * p.rows, row = row0 + pixel / p.columns;
        const int column0 = tile % across * p.columns, column = column0 + pixel % p.columns;
        const float* sums = block.convolve(x + image * s.c * s.h * s.w, row0, column0);
        if (pixel >= p.rows * p.columns || row >= p.oh || column >= p.ow) continue;
        const int64_t plane = s.oh * s.ow;
        constexpr int BOTH = 2, MANY = 8;  // filters of all threads, and of one, at once
        const int of_thread = block.thread / convolution::PIXELS;
        float* to = y + (image * s.f + first + of_thread) * plane + row * s.ow + column;
        for (int n = of_thread; n < N; n += BOTH * MANY) {
            float sum[MANY];
#pragma unroll
            for (int i = 0; i < MANY; ++i) sum[i] = sums[(n + BOTH * i) * convolution::PITCH + pixel];
#pragma unroll
            for (int i = 0; i < MANY; ++i, to += BOTH * plane)
                if (first + n + BOTH * i < s.f) *to = sum[i];
        }
    }
}

template <int N>
int launch_resident(const float* x, const float* weight, const float* bias, float* y,
                    const Shape& s, const convolution::Plan& p, cudaStream_t stream) {
    const int groups = (int)((s.f + N - 1) / N);
    const auto kernel = conv2d_resident<N>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.bytes(N));
    kernel<<<convolution::blocks(groups), convolution::THREADS, p.bytes(N), stream>>>(
        x, weight, bias, y, s, p, groups);
    return (int)cudaGetLastError();
}

// The tiles that cover the output with the fewest products; whether there are any, and enough work.
bool plan(convolution::Plan& best, const float* x, const Shape& s) {
    if (double(s.n) * s.f * s.oh * s.ow * s.c * s.kh * s.kw < RESIDENT_FROM * 1e6) return false;
    if (!TF32 && s.c > RESIDENT_CHANNELS) return false;
    convolution::Plan p = {};
    if (!convolution::describe(p, x, s, s.oh, s.ow)) return false;
    int64_t least = 0;
    for (int columns = 1; columns <= p.ow && columns <= convolution::PIXELS; ++columns)
        for (int rows = 1; rows <= p.oh && rows * columns <= convolution::PIXELS; ++rows) {
            if (!p.divide(rows, columns)) break;
            const int64_t tiles =
                (int64_t)((p.oh + rows - 1) / rows) * ((p.ow + columns - 1) / columns);
            if (least == 0 || tiles < least) least = tiles, best = p;
        }
    return least > 0 && s.n * least < 1 << 30;
}
#endif

extern "C" int conv2d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t n, int64_t c, int64_t h, int64_t w, int64_t f, int64_t kh,
                      int64_t kw, int64_t oh, int64_t ow, int64_t stride, int64_t padding,
                      cudaStream_t stream) {
    if (n == 0 || f == 0 || oh == 0 || ow == 0) return 0;
    constexpr int64_t MOST = 1ll << 31;  // of an image's and a filter's elements: int counts them
    if (c * h * w >= MOST || c * kh * kw >= MOST) return (int)cudaErrorInvalidValue;
    const Shape shape = {n, c, h, w, f, kh, kw, oh, ow, stride, padding};
#ifndef PORTKERN_FLOAT32
    if (channels_last::pays(shape, REORDER_FROM, MOST_FILTERS))
        return channels_last::launch(x, weight, bias, y, shape, stream);
#endif
    if (few_filters::suit(shape)) return few_filters::launch(x, weight, bias, y, shape, stream);
#ifdef RESIDENT
    convolution::Plan p;
    if (plan(p, x, shape))
        return convolution::wide(f) ? launch_resident<96>(x, weight, bias, y, shape, p, stream)
                                    : launch_resident<64>(x, weight, bias, y, shape, p, stream);
#endif
#if defined(PORTKERN_FLOAT32) && !TF32
    const pixels::Way way = pixels::choose(shape);
    if (channels_last::fits(shape) && channels_last::time(shape) < way.time)
        return channels_last::launch(x, weight, bias, y, shape, stream);
    return way.launch(x, weight, bias, y, shape, way.splits, stream);
#else
    return launch_gathered(x, weight, bias, y, shape, Shared(shape), stream);
#endif
}
