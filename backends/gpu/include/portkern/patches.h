// Convolutions: their shape, and where the elements of a patch lie, which a filter is multiplied with.
#pragma once
#include <portkern/rows.h>

struct Shape {
    int64_t n, c, h, w, f, kh, kw, oh, ow, stride, padding, window = 1, pool_stride = 1;
};

// One row of the depth: how far from a patch's corner it lies, and in which row and column of it.
struct alignas(16) Tap {
    int offset, i, j;
};
constexpr int OUTSIDE = -(1 << 30);  // a row that no image has, even twice

__device__ __forceinline__ Tap tap_of(const Shape& s, int depth) {
    const int kw = (int)s.kw, filter = (int)s.kh * kw;
    if (depth >= (int)s.c * filter) return {0, OUTSIDE, 0};
    const int i = depth % filter / kw, j = depth % filter % kw;
    return {(int)((depth / filter * s.h + i) * s.w + j), i, j};
}

// An output by ordinary additions: the parts of an infinity make a NaN. (top, left) is the patch's corner.
__device__ __noinline__ float anew(const scalar_t* x, const scalar_t* weight, const Shape& s, int64_t image,
                                   int64_t filter, int64_t top, int64_t left) {
    float sum = 0.0f;
#pragma unroll 1
    for (int64_t d = 0; d < s.c * s.kh * s.kw; ++d) {
        const int64_t row = top + d / s.kw % s.kh, column = left + d % s.kw;
        if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
        const int64_t from = ((image * s.c + d / (s.kh * s.kw)) * s.h + row) * s.w + column;
        sum = fmaf(float(x[from]), float(weight[filter * s.c * s.kh * s.kw + d]), sum);
    }
    return sum;
}

// Output i.
__device__ __forceinline__ float anew(const scalar_t* x, const scalar_t* weight, const Shape& s, int64_t i) {
    const int64_t plane = s.oh * s.ow, at = i % plane;
    return anew(x, weight, s, i / (s.f * plane), i / plane % s.f, at / s.ow * s.stride - s.padding,
                at % s.ow * s.stride - s.padding);
}
