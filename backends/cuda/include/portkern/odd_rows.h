// Where a product of float32 by halves does not do, so that these rows and columns are computed by
// ordinary products instead.
#pragma once
#include <portkern/packs.h>

// The bits of the largest element of each row of A or column of B, and the complement of those of the smallest
// that is not zero: of floats without their signs, they are ordered as the numbers are, and both begin with 0.
struct Range {
    unsigned *most, *least;

    __device__ __forceinline__ Range from(int64_t first) const { return {most + first, least + first}; }
};

// Where halves do not do: at an infinity or NaN, or where something is lost beside the largest.
__device__ __forceinline__ bool is_odd(Range range, int64_t i) {
    const float most = __uint_as_float(range.most[i]), least = __uint_as_float(~range.least[i]);
    return !isfinite(most) || (most > 0.0f && ilogbf(most) - ilogbf(least) > 40);
}

// Which tiles are to be computed: all, or those with a row or column of this kind.
struct Odd {
    Range rows = {}, columns = {};

    // Of one product of a batch, whose ranges follow one another.
    __device__ __forceinline__ Odd of(int64_t batch, int64_t m, int64_t n) const {
        return rows.most ? Odd{rows.from(batch * m), columns.from(batch * n)} : Odd{};
    }

    __device__ bool in(int64_t row0, int64_t column0, int side, int64_t m, int64_t n) const {
        if (!rows.most) return true;
        bool found = false;
        for (int i = threadIdx.x; i < side; i += blockDim.x)
            found |= (row0 + i < m && is_odd(rows, row0 + i)) ||
                     (column0 + i < n && is_odd(columns, column0 + i));
        return __syncthreads_or(found);
    }
};
