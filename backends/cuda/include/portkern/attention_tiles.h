// Attention in one pass: a block keeps some queries and the sums of their values, and goes over the keys
// that they see, a tile at a time. As a row's maximum grows, what was summed before is scaled down. Products
// are mma.sync of halves; a float32 is the sum of three bfloat16, which have all of its bits and its range.
// Where there are too few queries to fill a GPU, blocks share the keys of a tile of queries.
// WARPS, SPLIT_BELOW and PART_FROM are the including source's.
#pragma once
#include <portkern/rows.h>
#ifdef PORTKERN_FLOAT32
#include <cuda_bf16.h>
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
#include <portkern/tensor_cores.h>

constexpr int THREADS = 32 * WARPS;
constexpr bool HALVES = sizeof(scalar_t) == 2;

// What is multiplied, and of how many of them an element is the sum: each has what those before left.
#ifdef PORTKERN_FLOAT32
using slice_t = __nv_bfloat16;
constexpr int SLICES = 3;
#else
using slice_t = scalar_t;
constexpr int SLICES = 1;
#endif

// D: the dimension, padded with zeros. ROWS: a lane's queries, which lie 8 apart, lane / 4 the first.
// The wider rows are, and the more of them, the fewer keys have room in registers and shared memory.
template <int D, int ROWS>
struct Tile {
    static constexpr int slice = D + 16 / sizeof(slice_t);  // 8 neighbouring rows lie in different banks
    static constexpr int pitch = slice * SLICES, queries = WARPS * 8 * ROWS;
    static constexpr int row_bytes = D * SLICES * sizeof(slice_t);
    static constexpr int keys = ROWS * row_bytes <= 512 ? 64 : ROWS * row_bytes <= 1536 ? 32 : 16;
    static constexpr int bytes = (queries + (HALVES ? 3 : 2) * keys) * pitch * sizeof(slice_t);
};

// The keys of a query in parts of `keys` each, which leave what they sum up, and the highest score and
// total weight that they have seen, for combine(). Without `sums` there is one part.
struct Parts {
    int64_t rows, keys;  // rows: queries of all heads
    float* sums = nullptr;
    float2* seen = nullptr;
};

// The score of a key that a query does not see: -inf.
__device__ __forceinline__ float unseen() { return __int_as_float(0xff800000); }

// score() multiplies queries and keys, sum_up() weights and values. A lane has columns in pairs: lane % 4
// is the first pair, the others lie 4 pairs apart. This is how mma.sync gives its results.
constexpr int GROUP = 2;

struct alignas(4) Pair {
    slice_t at[2];
};
__device__ __forceinline__ unsigned bits(const Pair& pair) { return *reinterpret_cast<const unsigned*>(&pair); }

#ifdef PORTKERN_FLOAT32
__device__ __forceinline__ float weight(float score, float highest, float scale) {
    return exp2f((score - highest) * scale);
}
__device__ __forceinline__ float quotient(float sum, float total) { return sum / total; }

// Slices of two neighbours. The first is the nearest bfloat16 that is finite, so that the largest floats
// have slices too; of an infinity they are no numbers.
__device__ __forceinline__ void split(unsigned (&slices)[SLICES], float first, float second) {
    constexpr float MOST = 3.3895314e38f;
    Pair head = {slice_t(fminf(fmaxf(first, -MOST), MOST)), slice_t(fminf(fmaxf(second, -MOST), MOST))};
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
        slices[s] = bits(head);
        first -= float(head.at[0]);
        second -= float(head.at[1]);
        head = {slice_t(first), slice_t(second)};
    }
}

// COUNT rows of a head on their way through a thread's registers, where they become slices.
template <int D, int COUNT>
struct Rows {
    static constexpr int SHARE = (COUNT * D / VEC + THREADS - 1) / THREADS;
    Pack packs[SHARE];

    __device__ __forceinline__ void load(const float* __restrict__ from, int row, int64_t length, int dim,
                                         int access) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = (i * THREADS + threadIdx.x) * VEC, column = p % D;
            const int left = p < COUNT * D && row + p / D < length ? dim - column : 0;
            const float* at = from + (int64_t)(row + p / D) * dim + column;
            packs[i] = {};
            if (access == 16 && left > 0) packs[i] = *reinterpret_cast<const Pack*>(at);
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (access < 16 && j < left) packs[i].at[j] = at[j];
        }
    }
    __device__ __forceinline__ void store(slice_t* to) const {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = (i * THREADS + threadIdx.x) * VEC;
            if (p >= COUNT * D) break;
            unsigned low[SLICES], high[SLICES];
            split(low, packs[i].at[0], packs[i].at[1]);
            split(high, packs[i].at[2], packs[i].at[3]);
            slice_t* at = to + p / D * Tile<D, 2>::pitch + p % D;
#pragma unroll
            for (int s = 0; s < SLICES; ++s)
                *reinterpret_cast<uint2*>(at + s * Tile<D, 2>::slice) = make_uint2(low[s], high[s]);
        }
    }
};

// Of a product of two sums of slices those terms that float32 can tell. Tensor cores round sums towards
// zero, so they add few products before an ordinary addition takes over.
constexpr int DEEP = 64;

template <int D, int ROWS, int COLUMNS>
__device__ __forceinline__ void score(float (&scores)[ROWS][COLUMNS], const slice_t* q, const slice_t* k) {
    using T = Tile<D, ROWS>;
    const int lane = threadIdx.x % 32;
    q += lane % 16 * T::pitch + lane / 16 * 8;
    k += (lane / 16 * 8 + lane % 8) * T::pitch + lane / 8 % 2 * 8;
#pragma unroll 1
    for (int from = 0; from < D; from += DEEP) {
        float sums[ROWS][COLUMNS] = {};
#pragma unroll 2
        for (int d = from; d < min(D, from + DEEP); d += 16) {
            unsigned left[SLICES][ROWS / 2][4], right[COLUMNS / 4][4];
#pragma unroll
            for (int s = 0; s < SLICES; ++s)
#pragma unroll
                for (int i = 0; i < ROWS / 2; ++i)
                    load_pieces<false>(left[s][i], q + i * 16 * T::pitch + s * T::slice + d);
#pragma unroll
            for (int s = SLICES - 1; s >= 0; --s) {
#pragma unroll
                for (int j = 0; j < COLUMNS; j += 4)
                    load_pieces<false>(right[j / 4], k + j * 4 * T::pitch + s * T::slice + d);
#pragma unroll
                for (int t = SLICES - 1 - s; t >= 0; --t)
#pragma unroll
                    for (int j = 0; j < COLUMNS; j += 2)
#pragma unroll
                        for (int i = 0; i < ROWS; i += 2)
                            mma(sums[i] + j, sums[i + 1] + j, left[t][i / 2], right[j / 4] + j % 4);
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; ++i) scores[i / COLUMNS][i % COLUMNS] += sums[i / COLUMNS][i % COLUMNS];
    }
}

// The scores of 16 keys lie in a lane just as mma.sync wants them on the left.
template <int D, int ROWS, int COLUMNS>
__device__ __forceinline__ void sum_up(float (&sums)[ROWS][D / 4], const float (&weights)[ROWS][COLUMNS],
                                       const slice_t* v) {
    using T = Tile<D, ROWS>;
    constexpr int WIDE = D % 32 == 0 ? 8 : 4;  // columns at once: more products that do not wait for another
    v += threadIdx.x % 16 * T::pitch + threadIdx.x % 32 / 16 * 8;
    unsigned left[COLUMNS / 4][ROWS * 2][SLICES];
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4)
#pragma unroll
        for (int i = 0; i < ROWS * 2; ++i) {
            const float* two = weights[i / 4 * 2 + i % 2] + j + i % 4 / 2 * 2;
            split(left[j / 4][i], two[0], two[1]);
        }
#pragma unroll
    for (int c = 0; c < D / 4; c += WIDE) {
        float own[ROWS][WIDE] = {};
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 4)
#pragma unroll
            for (int s = SLICES - 1; s >= 0; --s) {
                unsigned right[WIDE / 4][4];
#pragma unroll
                for (int e = 0; e < WIDE; e += 4)
                    load_pieces<true>(right[e / 4], v + j * 4 * T::pitch + s * T::slice + (c + e) * 4);
#pragma unroll
                for (int t = SLICES - 1 - s; t >= 0; --t)
#pragma unroll
                    for (int e = 0; e < WIDE; e += 2)
#pragma unroll
                        for (int i = 0; i < ROWS; i += 2) {
                            const auto& of = left[j / 4];
                            const unsigned a[4] = {of[i * 2][t], of[i * 2 + 1][t], of[i * 2 + 2][t], of[i * 2 + 3][t]};
                            mma(own[i] + e, own[i + 1] + e, a, right[e / 4] + e % 4);
                        }
            }
#pragma unroll
        for (int i = 0; i < ROWS * WIDE; ++i) sums[i / WIDE][c + i % WIDE] += own[i / WIDE][i % WIDE];
    }
}
#else
// One instruction instead of six, which also lets the product of a row's maximum be shared.
__device__ __forceinline__ float weight(float score, float highest, float scale) {
    float power = fmaf(score, scale, -highest * scale);
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(power));
    return power;
}
__device__ __forceinline__ float quotient(float sum, float total) { return sum * (1.0f / total); }

// 16 bytes of a row, of which `left` elements are there; the rest becomes zeros.
__device__ __forceinline__ void copy_pack(scalar_t* to, const scalar_t* from, int64_t offset, int left,
                                          int access) {
    constexpr int FOUR = 4 / sizeof(scalar_t);  // elements of 4 bytes
    const scalar_t* source = left > 0 ? from + offset : from;
    if (access == 16) {
        copy_async<16>(to, source, left > 0 ? 16 : 0);
    } else if (access == 4) {
#pragma unroll
        for (int j = 0; j < VEC; j += FOUR)
            copy_async<4>(to + j, j < left ? source + j : from, j < left ? 4 : 0);
    } else {
#pragma unroll
        for (int j = 0; j < VEC; ++j) to[j] = j < left ? source[j] : scalar_t(0.0f);
    }
}

// COUNT rows of a head from `row` on, or of two (keys and values), whose rows all start on `access` bytes.
template <int D, int COUNT, int TENSORS>
__device__ __forceinline__ void copy(scalar_t* const (&to)[TENSORS],
                                     const scalar_t* const (&from)[TENSORS], int row,
                                     int64_t length, int dim, int access) {
    const int rows = (int)min((int64_t)COUNT, length - row);
#pragma unroll 1
    for (int p = threadIdx.x * VEC; p < COUNT * D; p += THREADS * VEC) {
        const int column = p % D, left = p / D < rows ? dim - column : 0;
        const int64_t offset = (int64_t)(row + p / D) * dim + column;
#pragma unroll
        for (int t = 0; t < TENSORS; ++t)
            copy_pack(to[t] + p / D * (D + VEC) + column, from[t], offset, left, access);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

template <int D, int ROWS, int COLUMNS>
__device__ __forceinline__ void score(float (&scores)[ROWS][COLUMNS], const scalar_t* q,
                                      const scalar_t* k) {
    constexpr int PITCH = D + VEC, AT_ONCE = D > 96 ? 4 : D / 16;  // more would take more registers
    const int lane = threadIdx.x % 32;
    q += lane % 16 * PITCH + lane / 16 * 8;
    k += (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll AT_ONCE
    for (int d = 0; d < D; d += 16) {
        unsigned left[ROWS / 2][4], right[4];
#pragma unroll
        for (int i = 0; i < ROWS / 2; ++i) load_pieces<false>(left[i], q + i * 16 * PITCH + d);
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j % 4 == 0) load_pieces<false>(right, k + j * 4 * PITCH + d);
#pragma unroll
            for (int i = 0; i < ROWS; i += 2)
                mma(scores[i] + j, scores[i + 1] + j, left[i / 2], right + j % 4);
        }
    }
}

// The scores of 16 keys lie in a lane just as mma.sync wants them on the left.
template <int D, int ROWS, int COLUMNS>
__device__ __forceinline__ void sum_up(float (&sums)[ROWS][D / 4],
                                       const float (&weights)[ROWS][COLUMNS], const scalar_t* v) {
    v += threadIdx.x % 16 * (D + VEC) + threadIdx.x % 32 / 16 * 8;
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) {
        unsigned left[ROWS / 2][4], right[4];
#pragma unroll
        for (int i = 0; i < ROWS * 2; ++i) {
            const float* two = weights[i / 4 * 2 + i % 2] + j + i % 4 / 2 * 2;
            left[i / 4][i % 4] = bits({scalar_t(two[0]), scalar_t(two[1])});
        }
#pragma unroll
        for (int c = 0; c < D / 4; c += 2) {
            if (c % 4 == 0) load_pieces<true>(right, v + j * 4 * (D + VEC) + c * 4);
#pragma unroll
            for (int i = 0; i < ROWS; i += 2)
                mma(sums[i] + c, sums[i + 1] + c, left[i / 2], right + c % 4);
        }
    }
}
#endif

// A finite number in place of -inf, which would make inf - inf of scores that are -inf as well.
__device__ __forceinline__ float finite(float highest) { return highest == unseen() ? 0.0f : highest; }

// Which keys a row sees, and in how many of the parts they are. Of attention a head has as many queries as
// keys; a query sees those up to its own.
struct Causal {
    int64_t rows;

    static constexpr bool GROUPED = false;
    __host__ __device__ int64_t keys() const { return rows; }
    __device__ __forceinline__ int place(int row) const { return row; }
    // The least and the largest place of some rows; the first key that a place sees; whether a key is before
    // that. What is below all scores, and finite.
    __device__ __forceinline__ int2 places(int row, int count) const { return make_int2(row, row + count - 1); }
    __device__ __forceinline__ int begin(int) const { return 0; }
    __device__ __forceinline__ bool passed(int, int) const { return false; }
    __device__ __forceinline__ bool hides(int key, int place) const { return key > place; }
    __device__ __forceinline__ float capped(float score) const { return score; }
    __device__ __forceinline__ float lowest(float of_scores) const { return of_scores; }
    // The n-th of some tiles of rows, those which see most keys first.
    __device__ __forceinline__ int by_keys(int n, int tiles, int) const { return tiles - 1 - n; }
    __device__ __forceinline__ int parts_of(int64_t row, int64_t keys, int) const {
        return (int)(row % rows / keys) + 1;
    }
};

// Of grouped attention rows are the queries of a group, one query head after another. The queries are the
// last of the keys' places, of which `window` are seen, 0: all. `inner` and `outer`: what scores and their
// hyperbolic tangents are multiplied by, 0: they have no cap.
struct Grouped {
    int64_t rows, queries, length, window;
    float inner, outer;

    static constexpr bool GROUPED = true;
    __host__ __device__ int64_t keys() const { return length; }
    __device__ __forceinline__ int place(int row) const { return (int)length - (int)queries + row % (int)queries; }
    __device__ __forceinline__ int2 places(int row, int count) const {
        const int last = (int)min(rows, (int64_t)row + count) - 1;
        if (row / (int)queries == last / (int)queries) return make_int2(place(row), place(last));
        return make_int2((int)(length - queries), (int)length - 1);
    }
    __device__ __forceinline__ int begin(int place) const {
        return window > 0 ? max(0, (int)max(place - window + 1, (int64_t)0)) : 0;
    }
    __device__ __forceinline__ bool passed(int key, int place) const { return window > 0 && key <= place - window; }
    __device__ __forceinline__ bool hides(int key, int place) const { return key > place || passed(key, place); }
    __device__ __forceinline__ float capped(float score) const {
        if (outer == 0.0f) return score;
        // 1 - 2 / (1 + e^2x): what it is off by does not grow with the score.
        return outer - __fdividef(2.0f * outer, 1.0f + exp2f(score * (inner * 2.88539008f)));
    }
    __device__ __forceinline__ float lowest(float of_scores) const { return outer == 0.0f ? of_scores : -2 * outer; }
    __device__ __forceinline__ int by_keys(int n, int tiles, int count) const {
        const int of_head = (int)queries / count, heads = tiles / max(of_head, 1);
        if (queries % count != 0) return tiles - 1 - n;
        return n % heads * of_head + of_head - 1 - n / heads;
    }
    __device__ __forceinline__ int parts_of(int64_t, int64_t, int all) const { return all; }
};

// Scores become weights. `first` is the warp's first row, of rows in `places`, and `key0` the first key.
template <int D, int ROWS, int COLUMNS, class Sight>
__device__ __forceinline__ void weigh(float (&scores)[ROWS][COLUMNS], float (&sums)[ROWS][D / 4],
                                      float (&top)[ROWS], float (&total)[ROWS], const Sight& sight, int2 places,
                                      int first, int key0, float scale) {
    const int lane = threadIdx.x % 32;
    // Whether a row does not see some of the keys.
    const bool edge = key0 + COLUMNS * 4 - 1 > places.x || sight.passed(key0, places.y);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float highest = top[i];
        if constexpr (Sight::GROUPED)
            if (sight.outer != 0.0f) {
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) scores[i][j] = sight.capped(scores[i][j]);
            }
        if (edge) {
            const int place = sight.place(first + lane / 4 + i * 8);
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const int group = j / GROUP * 4 + lane % 4;
                const int key = key0 + group * GROUP + j % GROUP;
                if (sight.hides(key, place)) scores[i][j] = unseen();
            }
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) highest = fmaxf(highest, scores[i][j]);
        highest = lane_reduce<Max>(highest, 4);
        const float base = finite(highest), shrink = weight(top[i], base, scale);
        top[i] = highest;
        total[i] *= shrink;
#pragma unroll
        for (int c = 0; c < D / 4; ++c) sums[i][c] *= shrink;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            scores[i][j] = weight(scores[i][j], base, scale);
            total[i] += scores[i][j];
        }
    }
}

// What `value` makes of a lane's sums of one query, to a row of `to`, a group in one access.
template <int D, class T, class Value>
__device__ __forceinline__ void put(T* to, Value value) {
    to += threadIdx.x % 4 * GROUP;
#pragma unroll
    for (int c = 0; c < D / 4; c += GROUP) {
        Some<GROUP, T> group;
#pragma unroll
        for (int e = 0; e < GROUP; ++e) group.at[e] = T(value(c + e));
        *reinterpret_cast<Some<GROUP, T>*>(to + c * 4) = group;
    }
}

// COUNT rows of a warp, which it has put in `from`, to memory: whole rows of sectors.
template <int D, int COUNT>
__device__ __forceinline__ void store(scalar_t* __restrict__ to, const scalar_t* from, int rows, int dim,
                                      int access) {
    __syncwarp();
    for (int p = threadIdx.x % 32 * VEC; p < COUNT * D; p += 32 * VEC) {
        const int column = p % D, left = p / D < rows ? dim - column : 0;
        const scalar_t* at = from + p / D * (D + VEC) + column;
        scalar_t* target = to + (int64_t)(p / D) * dim + column;
        if (access == 16 && left > 0) *reinterpret_cast<Pack*>(target) = *reinterpret_cast<const Pack*>(at);
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            if (access < 16 && j < left) target[j] = at[j];
    }
}

template <int D, int ROWS, class Sight>
__global__ __launch_bounds__(THREADS) void attention_kernel(
    const scalar_t* __restrict__ q, const scalar_t* __restrict__ k, const scalar_t* __restrict__ v,
    scalar_t* __restrict__ y, unsigned heads, const Sight sight, int dim, float scale, int access,
    Parts parts) {
    using T = Tile<D, ROWS>;
    constexpr int QUERIES = T::queries, KEYS = T::keys, VALUES = KEYS * T::pitch;
    extern __shared__ __align__(128) unsigned char shared[];
    slice_t* tile_q = reinterpret_cast<slice_t*>(shared);
    slice_t* tile_k = tile_q + QUERIES * T::pitch;
    slice_t* tile_v = tile_k + KEYS * T::pitch;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t length = sight.keys(), head = blockIdx.x % heads * sight.rows;
    // The last queries, which have the most keys, come first.
    const int query0 = (int)(gridDim.x / heads - 1 - blockIdx.x / heads) * QUERIES;
    const int2 places = sight.places(query0, QUERIES);
    int from = (int)(blockIdx.y * parts.keys);
    const int to = (int)min(min(length, (int64_t)places.y + 1), from + parts.keys);
    if constexpr (Sight::GROUPED) from += max(sight.begin(places.x) - from, 0) / KEYS * KEYS;
    else if (from >= to) return;
    const int first = query0 + warp * 8 * ROWS, rows = (int)min(sight.rows - first, (int64_t)8 * ROWS);
    slice_t* own = tile_q + warp * 8 * ROWS * T::pitch;
    scalar_t* result = reinterpret_cast<scalar_t*>(own);  // takes less room than the queries
    float sums[ROWS][D / 4] = {}, top[ROWS], total[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; ++i) top[i] = unseen();
    q += head * dim;
    k += (Sight::GROUPED ? blockIdx.x % heads * length : head) * dim;
    v += (Sight::GROUPED ? blockIdx.x % heads * length : head) * dim;
#ifdef PORTKERN_FLOAT32
    // Where registers are short, rows come when they are wanted.
    constexpr bool LATE = Sight::GROUPED && D >= 128;
    Rows<D, KEYS> held;
    const auto fetch_keys = [&](int key0, int) {
        if (!LATE) held.load(k, key0, length, dim, access);
    };
    const auto put_keys = [&](int key0) {
        if (LATE) held.load(k, key0, length, dim, access);
        held.store(tile_k);
    };
    const auto fetch_values = [&](int key0) {
        if (!LATE) held.load(v, key0, length, dim, access);
    };
    const auto put_values = [&](int key0) {
        if (LATE) held.load(v, key0, length, dim, access);
        held.store(tile_v);
    };
    for (int row = 0; row < QUERIES; row += KEYS) {
        held.load(q, query0 + row, sight.rows, dim, access);
        held.store(tile_q + row * T::pitch);
    }
#else  // the products of halves are too short to hide a copy: values come a tile ahead of their use
    const auto fetch_keys = [&](int key0, int turn) {
        copy<D, KEYS, 2>({tile_k, tile_v + turn * VALUES}, {k, v}, key0, length, dim, access);
    };
    const auto put_keys = [&](int) { wait_copies(); };
    const auto fetch_values = [&](int) {};
    const auto put_values = [&](int) {};
    copy<D, QUERIES, 1>({tile_q}, {q}, query0, sight.rows, dim, access);
#endif
    if (!Sight::GROUPED || from < to) fetch_keys(from, 0);
    for (int key0 = from, turn = 0; key0 < to; key0 += KEYS, turn ^= HALVES) {
        put_keys(key0);
        __syncthreads();  // the keys are there, and everybody is done with the last values
        fetch_values(key0);
        int from_row = first;
        if constexpr (Sight::GROUPED && !HALVES) asm volatile("" : "+r"(from_row));  // no registers for places
        const int2 seen = sight.places(from_row, 8 * ROWS);
        // Whether the warp sees any of these keys.
        const bool sees = rows > 0 && key0 <= seen.y && !(Sight::GROUPED && key0 + KEYS <= sight.begin(seen.x));
        float scores[ROWS][KEYS / 4] = {};
        if (sees) score<D>(scores, own, tile_k);
        put_values(key0);
        __syncthreads();  // the values are there, and everybody is done with the keys
        if (key0 + KEYS < to) fetch_keys(key0 + KEYS, turn ^ 1);
        if (!sees) continue;
        weigh<D>(scores, sums, top, total, sight, seen, from_row, key0, scale);
        sum_up<D>(sums, scores, tile_v + turn * VALUES);
    }
    if (Sight::GROUPED && from >= to) {  // queries without keys: the tile that zeros go to is still being filled
#ifndef PORTKERN_FLOAT32
        wait_copies();
#endif
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        total[i] = lane_reduce<Sum>(total[i], 4);
        const int row = lane / 4 + i * 8;
        if (!parts.sums) {  // the warp alone has read its queries, and is done with them
            const auto mean = [&](int c) {
                return Sight::GROUPED && total[i] == 0.0f ? 0.0f : quotient(sums[i][c], total[i]);
            };
            put<D>(result + row * (D + VEC), mean);
        } else if (row < rows && (Sight::GROUPED || from <= first + row)) {
            const int64_t at = blockIdx.y * parts.rows + head + first + row;
            put<D>(parts.sums + at * D, [&](int c) { return sums[i][c]; });
            if (lane % 4 == 0) parts.seen[at] = {top[i], total[i]};
        }
    }
    if (!parts.sums) store<D, 8 * ROWS>(y + (head + first) * dim, result, rows, dim, access);
}

// Puts the parts of a query's keys together, in their order. A lane of a warp has one of the parts, and
// one of 32 columns.
template <class Sight>
__global__ __launch_bounds__(THREADS) void combine(Parts parts, scalar_t* __restrict__ y, const Sight sight, int many,
                                                   int dim, int width, float scale) {
    const int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int groups = (dim + 31) / 32, lane = threadIdx.x % 32;
    const int64_t row = warp / groups;
    if (row >= parts.rows) return;
    const int column = (int)(warp % groups) * 32 + lane, count = sight.parts_of(row, parts.keys, many);
    const float2 seen = lane < count ? parts.seen[lane * parts.rows + row] : float2{unseen(), 0.0f};
    const float share = weight(seen.x, finite(lane_reduce<Max>(seen.x, 32)), scale);
    const float total = lane_reduce<Sum>(seen.y * share, 32);
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < count; ++part)
        sum = fmaf(parts.sums[(part * parts.rows + row) * width + min(column, dim - 1)],
                   __shfl_sync(~0u, share, part), sum);
    if (column < dim)
        y[row * dim + column] = scalar_t(Sight::GROUPED && total == 0.0f ? 0.0f : quotient(sum, total));
}

// Keys of a part: all, unless there are too few tiles of queries to fill a GPU. Then about as many as
// give SPLIT_BELOW blocks alike shares of the work, which is half a square for each head of attention; but not so
// few that putting parts together takes longer, where halves are four times as fast as float32, nor
// fewer than 32 lanes can put together.
template <int D, int ROWS, class Sight>
int64_t keys_of_part(int64_t heads, const Sight& sight) {
    constexpr int QUERIES = Tile<D, ROWS>::queries, KEYS = Tile<D, ROWS>::keys;
    const int64_t tiles = (sight.rows + QUERIES - 1) / QUERIES, length = sight.keys();
    if (heads * tiles >= SPLIT_BELOW) return (length + KEYS - 1) / KEYS * KEYS;
    // Of tiles and keys.
    const int64_t pairs = heads * tiles * (Sight::GROUPED ? length : (tiles + 1) / 2 * QUERIES);
    const int64_t least = max(length / 32 + 1, (int64_t)(HALVES ? PART_FROM : PART_FROM / 4));
    return (max(pairs / SPLIT_BELOW, least) + KEYS - 1) / KEYS * KEYS;
}

// Bytes that all rows of all tensors start on: 16, 4 or those of an element.
int access_of(const scalar_t* q, const scalar_t* k, const scalar_t* v, const scalar_t* y, int64_t dim) {
    const uintptr_t bytes = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)y |
                            (uintptr_t)(dim * sizeof(scalar_t));
    return bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : (int)sizeof(scalar_t);
}

template <int D, int ROWS, class Sight>
int run(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads, const Sight& sight,
        int64_t dim, cudaStream_t stream) {
    using T = Tile<D, ROWS>;
    const int access = access_of(q, k, v, y, dim);
    const float scale = 1.44269504f / sqrtf((float)dim);  // for powers of 2
    const int64_t tiles = (sight.rows + T::queries - 1) / T::queries;
    Parts parts{heads * sight.rows, keys_of_part<D, ROWS>(heads, sight)};
    const int64_t count = (sight.keys() + parts.keys - 1) / parts.keys, left = count > 1 ? count * parts.rows : 0;
    Scratch<float> sums(left * D, stream);
    Scratch<float2> seen(left, stream);
    if (sums.error || seen.error) return (int)(sums.error ? sums.error : seen.error);
    parts.sums = sums.data;
    parts.seen = seen.data;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    const auto kernel = attention_kernel<D, ROWS, Sight>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::bytes);
    kernel<<<dim3((unsigned)(tiles * heads), (unsigned)count), THREADS, T::bytes, stream>>>(
        q, k, v, y, (unsigned)heads, sight, (int)dim, scale, access, parts);
    if (count > 1)
        combine<<<(unsigned)((parts.rows * ((dim + 31) / 32) + WARPS - 1) / WARPS), THREADS, 0, stream>>>(
            parts, y, sight, (int)count, (int)dim, D, scale);
    return (int)cudaGetLastError();
}
