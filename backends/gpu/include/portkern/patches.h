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
