// Rectifies and pools a convolution in memory.
#pragma once
#include <portkern/patches.h>

namespace pooling {

constexpr int THREADS = 256;

// Rounding keeps the order of numbers, so that it may come first.
__global__ __launch_bounds__(THREADS) void pool(const scalar_t* __restrict__ from, scalar_t* __restrict__ y,
                                                unsigned count, unsigned oh, unsigned ow, int height,
                                                int width, int window, int stride) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x, line = i / ow;
    if (i >= count) return;
    from += ((int64_t)(line / oh) * height + line % oh * stride) * width + i % ow * stride;
    float most = 0.0f;  // which rectifies
    for (int row = 0; row < window; ++row)
        for (int column = 0; column < window; ++column)
            most = max_nan(most, float(from[(int64_t)row * width + column]));
    y[i] = scalar_t(most);
}

// `convolve` writes the convolution.
template <class Convolve>
int launch(scalar_t* y, const Shape& s, const Shape& unpooled, cudaStream_t stream, Convolve convolve) {
    const int64_t height = unpooled.oh, width = unpooled.ow, count = s.n * s.f * s.oh * s.ow;
    Scratch<scalar_t> room(s.n * s.f * height * width, stream);
    if (room.error) return (int)room.error;
    if (const int wrong = convolve(room.data)) return wrong;
    pool<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        room.data, y, (unsigned)count, (unsigned)s.oh, (unsigned)s.ow, (int)height, (int)width,
        (int)s.window, (int)s.pool_stride);
    return (int)cudaGetLastError();
}

}  // namespace pooling
