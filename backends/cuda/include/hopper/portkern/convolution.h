// Float32 convolutions on Hopper's tensor cores, for filters that fit in a block's shared memory.
//
// All filters of a block stay there, and each of its two warpgroups keeps the part of the image that
// its next 64 pixels need: nothing is gathered in memory, products read their patches where they lie.
// Both are kept as halves, x = (high + low / 2^11) / 2^s with one s per filter and per part of the
// image, which keeps 22 bits; a product takes three of halves, since low * low is below the rounding.
// Tensor cores round sums towards zero, so they add 80 products at most of high * high before an
// ordinary addition takes over. Where halves do not do (an infinity, numbers too far apart), sums come
// out as NaN, and are computed anew by ordinary additions.
#pragma once
#ifdef PORTKERN_HOPPER
#include <cuda_fp16.h>
#include <float.h>
#include <portkern/hopper.h>

namespace convolution {

constexpr int PIXELS = 64, GROUP = 128, GROUPS = 2, THREADS = GROUPS * GROUP;
constexpr int PART = 4096, HELD = 36;          // words of a warpgroup's part, and of a thread at most
constexpr int PITCH = PIXELS + 4;              // of sums: 8 pixels of 4 pairs of filters, no conflict
constexpr int EXTRA = 11, FAR = 40, CHUNK = 5;
constexpr int64_t MOST_SHARED = 227 * 1024 - 1024;  // a block's on Hopper, and what is static

// How a convolution is divided; all of it fits in int.
struct Plan {
    int c, h, w, f, kh, kw, oh, ow, stride, padding;
    int rows, columns;  // of the pixels that a warpgroup computes at once
    int lines, pitch;   // of its part of a channel: lines, and words (pairs of neighbours) in each
    int advance, unit;  // columns from word to word (one where the stride is odd); words from pixel to pixel
    int abreast;        // lines that a warpgroup loads at once
    int steps;          // products of depth 16
    bool even;          // pairs of an image's columns are aligned and end with its lines

    __host__ __device__ int pairs() const { return (kw + 1) / 2; }
    __host__ __device__ int filter_bytes(int n) const { return steps * 16 * n * 2 * (int)sizeof(half); }
    __host__ __device__ int bytes(int n) const {
        return filter_bytes(n) + GROUPS * 2 * PART * (int)sizeof(half2) + steps * 4 * (int)sizeof(int2);
    }
    // Sets what follows from rows and columns; whether they fit.
    bool divide(int rows_, int columns_) {
        rows = rows_, columns = columns_;
        advance = stride % 2 ? 1 : 2, unit = stride / advance;
        lines = (rows - 1) * stride + kh;
        pitch = (columns - 1) * unit + (pairs() - 1) * (2 / advance) + 1;
        steps = (c * kh * pairs() + 7) / 8;
        for (abreast = 1; abreast * 2 * pitch <= GROUP;) abreast *= 2;
        const int64_t all = (int64_t)c * lines;
        return rows * columns <= PIXELS && pitch <= GROUP && all * pitch <= PART && all <= HELD * abreast;
    }
};

// Whether blocks have 96 filters, or 64, which leaves fewer without use.
inline bool wide(int64_t f) { return (f + 95) / 96 * 96 <= (f + 63) / 64 * 64; }

// One block per multiprocessor, as many for each group of filters.
inline int blocks(int groups) {
    return max(multiprocessors() / groups, 1) * groups;
}

// A convolution's sizes; whether they suit, as far as they do not depend on its division.
template <typename Shape>
bool describe(Plan& p, const float* x, const Shape& s, int64_t oh, int64_t ow) {
    constexpr int64_t MOST = 1 << 15;  // of what is multiplied with each other
    const int64_t sizes[] = {s.h, s.w, s.f, s.kh, s.kw, s.stride, s.padding};
    for (const int64_t each : sizes)
        if (each >= MOST) return false;
    p.c = (int)s.c, p.h = (int)s.h, p.w = (int)s.w, p.f = (int)s.f;
    p.kh = (int)s.kh, p.kw = (int)s.kw, p.oh = (int)oh, p.ow = (int)ow;
    p.stride = (int)s.stride, p.padding = (int)s.padding;
    p.even = (s.w | s.stride | s.padding) % 2 == 0 && (uintptr_t)x % 8 == 0;
    return p.divide(1, 1) && p.bytes(wide(s.f) ? 96 : 64) <= MOST_SHARED;
}

__device__ __forceinline__ void widen(unsigned& most, unsigned& least, float x) {
    const unsigned bits = __float_as_uint(x) & 0x7fffffff;
    most = max(most, bits);
    least = min(least, bits - 1);  // a zero is no least number
}

// Factors that give halves room for the largest number, and take it back.
struct Scale {
    float up, down;
};
__device__ __forceinline__ Scale scale_of(unsigned most, unsigned least) {
    const float largest = __uint_as_float(most), smallest = __uint_as_float(least + 1);
    if (most == 0) return {1.0f, 1.0f};
    if (!isfinite(largest) || ilogbf(largest) - ilogbf(smallest) > FAR) return {0.0f, NAN};
    const int shift = min(13 - ilogbf(largest), 126);
    return {__int_as_float((127 + shift) << 23), __int_as_float((127 - shift) << 23)};
}

// What is there, or zero. A branch would make every load wait for the one before.
__device__ __forceinline__ float2 load_pair(const float* from, bool there) {
    float2 v;
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %3, 0;\nmov.f32 %0, 0f00000000;\n"
                 "mov.f32 %1, 0f00000000;\n@there ld.global.nc.v2.f32 {%0, %1}, [%2];\n}"
                 : "=&f"(v.x), "=&f"(v.y) : "l"(from), "r"((int)there));
    return v;
}
__device__ __forceinline__ float load_one(const float* from, bool there) {
    float v;
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\nmov.f32 %0, 0f00000000;\n"
                 "@there ld.global.nc.f32 %0, [%1];\n}"
                 : "=&f"(v) : "l"(from), "r"((int)there));
    return v;
}

__device__ __forceinline__ void sync_group(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP) : "memory");
}

// The same, and whether any thread of the group found something.
__device__ __forceinline__ bool sync_group_or(int group, bool found) {
    int any;
    asm volatile("{\n.reg .pred mine, any;\nsetp.ne.b32 mine, %1, 0;\nbar.red.or.pred any, %2, %3, mine;\n"
                 "selp.b32 %0, 1, 0, any;\n}"
                 : "=r"(any) : "r"((int)found), "r"(group + 1), "n"(GROUP) : "memory");
    return any;
}

// A block's N filters and its warpgroups' parts of the image. EXACT: three products of halves,
// otherwise one, which is as exact as TF32.
template <int N, bool EXACT>
struct Block {
    const Plan& p;
    const float *const weight, *const bias;
    const int first;       // of the filters
    half* filters;         // high, then low; each 8 deep, N filters, 8 deep inside
    half2* part;           // this warpgroup's: high, then low; each [channel][line][pitch]
    int2* taps;            // of each product's depth, 4 times: words from a patch's corner
    float2* of_filter;     // the factor to undo, and the bias
    unsigned (*range)[2];  // of this warpgroup's warps
    const int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;

    __device__ Block(unsigned char* shared, const Plan& p, const float* weight, const float* bias,
                     int first)
        : p(p), weight(weight), bias(bias), first(first) {
        __shared__ float2 of_filter_[N];
        __shared__ unsigned range_[GROUPS][4][2];
        half2* const parts = reinterpret_cast<half2*>(shared + p.filter_bytes(N));
        filters = reinterpret_cast<half*>(shared);
        part = parts + group * 2 * PART;
        taps = reinterpret_cast<int2*>(parts + GROUPS * 2 * PART);
        of_filter = of_filter_, range = range_[group];
        keep();
    }

    __device__ void keep() {
        const int depth = p.c * p.kh * p.kw, all = p.steps * 16, pairs = p.pairs();
        int* const places = reinterpret_cast<int*>(part - group * 2 * PART);  // in a filter, or -1
        for (int k = threadIdx.x; k < all; k += THREADS) {
            const int line = k / 2 / pairs, column = k / 2 % pairs * 2 + k % 2;
            places[k] = line < p.c * p.kh && column < p.kw ? line * p.kw + column : -1;
        }
        const auto tap = [&](int pair) {
            const int line = pair / pairs, channel = line / p.kh;
            if (channel >= p.c) return 0;
            return (channel * p.lines + line % p.kh) * p.pitch + pair % pairs * (2 / p.advance);
        };
        for (int i = threadIdx.x; i < p.steps * 4; i += THREADS)
            taps[i] = make_int2(tap(i / 4 * 8 + i % 4), tap(i / 4 * 8 + i % 4 + 4));
        __syncthreads();
        const int lane = threadIdx.x % 32;
        for (int n = threadIdx.x / 32; n < N; n += THREADS / 32) {
            const bool exists = first + n < p.f;
            const float* from = weight + (int64_t)(exists ? first + n : 0) * depth;
            constexpr int IN_FLIGHT = 8;  // loads
            unsigned most = 0, least = ~0u;
#pragma unroll 1
            for (int d = lane; d < depth; d += 32 * IN_FLIGHT) {
                float x[IN_FLIGHT];
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i) x[i] = from[min(d + 32 * i, depth - 1)];
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i) widen(most, least, x[i]);
            }
            most = __reduce_max_sync(~0u, most), least = __reduce_min_sync(~0u, least);
            const Scale scale = scale_of(most, least);
            if (lane == 0) of_filter[n] = make_float2(scale.down, exists ? bias[first + n] : 0.0f);
#pragma unroll 1
            for (int k0 = lane; k0 < all; k0 += 32 * IN_FLIGHT) {
                float x[IN_FLIGHT];
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i) {
                    const int k = k0 + 32 * i, place = k < all ? places[k] : -1;
                    const float there = from[max(place, 0)];
                    x[i] = exists && place >= 0 ? there * scale.up : 0.0f;
                }
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i) {
                    const int k = k0 + 32 * i;
                    if (k >= all) continue;
                    half* to = filters + k / 8 * (N * 8) + n * 8 + k % 8;
                    const half high = __float2half_rn(x[i]);
                    to[0] = high;
                    to[all * N] = __float2half_rn((x[i] - __half2float(high)) * (1 << EXTRA));
                }
            }
        }
        hopper::fence_async();
        __syncthreads();
    }

    // One sum and its bias by ordinary additions; (top, left) is the corner of its patch.
    __device__ __forceinline__ float anew(const float* image, int filter, int top, int left) const {
        const float* by = weight + (int64_t)filter * p.c * p.kh * p.kw;
        float sum = 0.0f;
#pragma unroll 1
        for (int d = 0; d < p.c * p.kh * p.kw; ++d) {
            const int y = top + d / p.kw % p.kh, x = left + d % p.kw;
            if ((unsigned)y < (unsigned)p.h && (unsigned)x < (unsigned)p.w)
                sum = fmaf(image[(d / (p.kh * p.kw) * p.h + y) * p.w + x], by[d], sum);
        }
        return sum + bias[filter];
    }

    // This thread's words of a part of an image, from (top, left) on, with zeros around the image.
    template <bool EVEN>
    __device__ __forceinline__ void load(float2 (&held)[HELD], const float* image, int top, int left) const {
        const int across = GROUP / p.abreast, line = thread / across, u = thread % across;
        const int x = left + u * p.advance, bottom = top + p.lines;
        const bool first = u < p.pitch && (unsigned)x < (unsigned)p.w;
        const bool second = u < p.pitch && (unsigned)(x + 1) < (unsigned)p.w;
        // Words lie `abreast` lines apart: so many channels and rows, and one more channel at its end.
        const int more_rows = p.abreast % p.lines, wrap = (p.h - p.lines) * p.w;
        const int more = (p.abreast / p.lines * p.h + more_rows) * p.w;
        int y = top + line % p.lines, at = (line / p.lines * p.h + y) * p.w + x;
        int lines = p.c * p.lines - line;  // to go
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const bool inside = lines > 0 && (unsigned)y < (unsigned)p.h;
            if (EVEN) {
                held[i] = load_pair(image + at, inside && first);
            } else {
                held[i].x = load_one(image + at, inside && first);
                held[i].y = load_one(image + at + 1, inside && second);
            }
            lines -= p.abreast, y += more_rows, at += more;
            if (y >= bottom) y -= p.lines, at += wrap;
        }
    }

    // This warpgroup's part of an image, from (top, left) on; the factor to undo.
    __device__ float stage(const float* image, int top, int left) {
        asm("" : "+l"(image));  // one address, and distances from it
        float2 held[HELD];
        if (p.even) load<true>(held, image, top, left);
        else load<false>(held, image, top, left);
        unsigned most = 0, least = ~0u;
#pragma unroll
        for (int i = 0; i < HELD; ++i) widen(most, least, held[i].x), widen(most, least, held[i].y);
        most = __reduce_max_sync(~0u, most), least = __reduce_min_sync(~0u, least);
        if (thread % 32 == 0) range[thread / 32][0] = most, range[thread / 32][1] = least;
        sync_group(group);  // and whoever read the last sums is done
#pragma unroll
        for (int i = 0; i < 4; ++i) most = max(most, range[i][0]), least = min(least, range[i][1]);
        const Scale scale = scale_of(most, least);
        const int across = GROUP / p.abreast, u = thread % across;
        const int all = u < p.pitch ? p.c * p.lines : 0;
        int line = thread / across;
#pragma unroll
        for (int i = 0; i < HELD; ++i, line += p.abreast) {
            const float x = held[i].x * scale.up, y = held[i].y * scale.up;
            const half2 high = __floats2half2_rn(x, y);
            const float2 back = __half22float2(high);
            constexpr float UP = 1 << EXTRA;
            const half2 low = __floats2half2_rn((x - back.x) * UP, (y - back.y) * UP);
            half2* to = part + line * p.pitch + u;
            if (line < all) to[0] = high, to[PART] = low;
        }
        sync_group(group);
        return scale.down;
    }

    // COUNT products of depth 16 from `step` on, of the pixels with these corners.
    template <int COUNT>
    __device__ __forceinline__ void multiply(float (&total)[N / 2], float (&small)[N / 2], int step,
                                             const half2* upper, const half2* lower) {
        unsigned high[COUNT][4], low[COUNT][4];
        float some[N / 2];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int2 at = taps[(step + i) * 4 + thread % 4];
            const half2* words[4] = {upper + at.x, lower + at.x, upper + at.y, lower + at.y};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                high[i][j] = *reinterpret_cast<const unsigned*>(words[j]);
                low[i][j] = *reinterpret_cast<const unsigned*>(words[j] + PART);
            }
        }
        const auto of_filters = [&](int i, bool of_low) {
            const half* from = filters + (step + i) * 16 * N + (of_low ? p.steps * 16 * N : 0);
            return hopper::plain_operand(from, 128, N * 16);
        };
        hopper::begin_products();
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            hopper::multiply_f16<true>(some, high[i], of_filters(i, false), i > 0);
#pragma unroll
        for (int i = 0; EXACT && i < COUNT; ++i) {
            hopper::multiply_f16<true>(small, high[i], of_filters(i, true));
            hopper::multiply_f16<true>(small, low[i], of_filters(i, false));
        }
        hopper::commit_products();
        hopper::wait_products<0>();
        hopper::settle(some);
        hopper::settle(small);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) total[i] += some[i];
    }

    // The sums of this warpgroup's pixels and the bias, as [filter][PITCH]; (row, column) is the first
    // pixel. They may be read until the next call.
    __device__ const float* convolve(const float* image, int row, int column) {
        const int top = row * p.stride - p.padding, left = column * p.stride - p.padding;
        const float down = stage(image, top, left);
        const int pixel = thread / 32 * 16 + thread % 32 / 4, all = p.rows * p.columns;
        const auto corner = [&](int i) {
            return i < all ? part + i / p.columns * p.stride * p.pitch + i % p.columns * p.unit : part;
        };
        const half2 *upper = corner(pixel), *lower = corner(pixel + 8);
        float total[N / 2] = {}, small[N / 2] = {};
        int step = 0;
        for (; step + CHUNK <= p.steps; step += CHUNK)
            multiply<CHUNK>(total, small, step, upper, lower);
        for (; step < p.steps; ++step) multiply<1>(total, small, step, upper, lower);
        sync_group(group);  // nobody reads patches any more
        float* sums = reinterpret_cast<float*>(part);
        bool lost = false;
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int n = j * 8 + thread % 4 * 2 + e;
                float undo = down * of_filter[n].x;
                if (!(undo >= FLT_MIN && undo <= FLT_MAX)) undo = NAN, lost = true;
#pragma unroll
                for (int i = e; i < 4; i += 2) {
                    const float sum = fmaf(small[j * 4 + i], 1.0f / (1 << EXTRA), total[j * 4 + i]);
                    sums[n * PITCH + pixel + i / 2 * 8] = fmaf(sum, undo, of_filter[n].y);
                }
            }
        if (!sync_group_or(group, lost)) return sums;
#pragma unroll 1
        for (int i = thread; i < N * PIXELS; i += GROUP) {
            const int n = i / PIXELS, at = i % PIXELS;
            if (!isnan(sums[n * PITCH + at]) || first + n >= p.f || at >= all) continue;
            sums[n * PITCH + at] = anew(image, first + n, top + at / p.columns * p.stride,
                                        left + at % p.columns * p.stride);
        }
        sync_group(group);
        return sums;
    }
};

}  // namespace convolution
#endif
