// Causal attention in one pass: a block keeps the sums of the values of 128 queries, or 64, and goes
// over the keys up to the last of them, a tile at a time. As a query's maximum grows, what was summed
// before is scaled down. Products are FMA or, for halves on CDNA and NVIDIA, of the matrix units. On
// NVIDIA, where there are too few queries to fill a GPU, blocks share the keys of a tile of queries.
#define SLICE 32  // knob: 16 32
#define LARGE_FROM 800  // knob: 400 800 1600
#define SPLIT_BELOW 264  // knob: 132 264 528
#include <portkern/matrix_unit.h>
#include <portkern/rows.h>

// With tensor cores, 4 warps of 16 queries or twice 16; else a block of 256 has 128 queries.
#ifdef TENSOR_CORES
constexpr int THREADS = 128;
#else
constexpr int THREADS = 256;
#endif
constexpr int ROWS = 64;  // queries of a block, times GROUPS

// One head. `scale` is for powers of 2.
struct Head {
    const scalar_t *q, *k, *v;
    scalar_t* y;
    int64_t length;
    int dim;
    float scale;
    bool aligned;
#ifdef TENSOR_CORES
    // Keys of a part, and what the parts leave of `rows` queries of all heads, for combine(): sums, and the
    // highest score and total weight that they have seen. Without `sums` there is one part.
    int64_t part, rows;
    float* sums;
    float2* seen;
#endif
};

// The score of a key that a query does not see: -inf.
__device__ __forceinline__ float unseen() { return __int_as_float(0xff800000); }

// A pack of one row, with zeros for what lies outside.
__device__ __forceinline__ Pack load(const Head& head, const scalar_t* __restrict__ from,
                                     int64_t row, int column) {
    const bool inside = row < head.length && column < head.dim;
    const scalar_t* source = from + row * head.dim + column;
    uint4 bits = make_uint4(0, 0, 0, 0);  // as one value: clang puts a struct into scratch here
    if (inside && head.aligned) bits = *reinterpret_cast<const uint4*>(source);
    Pack pack = __builtin_bit_cast(Pack, bits);
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (inside && !head.aligned && column + j < head.dim) pack.at[j] = source[j];
    return pack;
}

#ifdef MATRIX_UNIT
using namespace matrix_unit;

#ifdef TENSOR_CORES
// Tiles of keys and values in shared memory, as they lie in memory. The next ones come while these are used.
template <int D, int KEYS>
struct Tiles {
    static constexpr int PITCH = D + 8, ROOM = 4 * KEYS * PITCH;
    scalar_t* tile;
    int turn = 1;

    __device__ __forceinline__ void fetch(const Head& head, int key0) {
        scalar_t* to = tile + (turn ^ 1) * 2 * KEYS * PITCH;
#pragma unroll
        for (int p = threadIdx.x * VEC; p < KEYS * D; p += THREADS * VEC) {
            const int row = key0 + p / D, column = p % D, at = p / D * PITCH + column;
            if (head.aligned) {
                const bool inside = row < head.length && column < head.dim;
                const int64_t from = inside ? (int64_t)row * head.dim + column : 0;
                copy_async(to + at, head.k + from, inside);
                copy_async(to + KEYS * PITCH + at, head.v + from, inside);
            } else {
                *reinterpret_cast<Pack*>(to + at) = load(head, head.k, row, column);
                *reinterpret_cast<Pack*>(to + KEYS * PITCH + at) = load(head, head.v, row, column);
            }
        }
        commit_copies();
    }
    __device__ __forceinline__ void settle() {
        wait_copies<0>();
        turn ^= 1;
    }
    __device__ __forceinline__ void leave() {}  // the next tiles lie elsewhere
    __device__ __forceinline__ Fragment keys(int key, int depth) const {
        return fragment(tile + (turn * 2 * KEYS + key) * PITCH + depth, PITCH);
    }
    __device__ __forceinline__ Fragment values(int depth, int key) const {
        return fragment_turned(tile + (turn * 2 * KEYS + KEYS + key) * PITCH + depth, PITCH);
    }
};
#else
// Tiles of keys and values in shared memory, the values with the keys inside. The next ones come into
// registers.
template <int D, int KEYS>
struct Tiles {
    static constexpr int SHARE = KEYS * D / VEC / THREADS, PITCH_K = D + 8, PITCH_V = KEYS + 8;
    static constexpr int ROOM = KEYS * PITCH_K + D * PITCH_V;
    scalar_t* tile;
    Pack next_k[SHARE], next_v[SHARE];

    __device__ __forceinline__ void fetch(const Head& head, int key0) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + threadIdx.x;
            next_k[i] = load(head, head.k, key0 + p * VEC / D, p * VEC % D);
            next_v[i] = load(head, head.v, key0 + p % KEYS, p / KEYS * VEC);
        }
    }
    __device__ __forceinline__ void settle() {
        scalar_t* values = tile + KEYS * PITCH_K;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + threadIdx.x;
            *reinterpret_cast<Pack*>(tile + p * VEC / D * PITCH_K + p * VEC % D) = next_k[i];
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                values[(p / KEYS * VEC + j) * PITCH_V + p % KEYS] = next_v[i].at[j];
        }
    }
    __device__ __forceinline__ void leave() { __syncthreads(); }
    __device__ __forceinline__ Fragment keys(int key, int depth) const {
        return fragment(tile + key * PITCH_K + depth, PITCH_K);
    }
    __device__ __forceinline__ Fragment values(int depth, int key) const {
        return fragment(tile + KEYS * PITCH_K + depth * PITCH_V + key, PITCH_V);
    }
};
#endif

// 2 to the power of (score - highest) * scale. All weights of a row share the product of their maximum.
__device__ __forceinline__ float weight(float score, float highest, float scale) {
    return power_of_2(fmaf(score, scale, -highest * scale));
}

// A wave has GROUPS x 16 queries. Scores are keys times queries, in a chain with values times weights; all
// lanes with something of a query have its maximum, and a total of their own.
template <int D, int GROUPS>
__device__ __forceinline__ void attend(const Head& head, int query0) {
    constexpr int KEYS = D <= 64 ? 64 : D <= 128 ? 32 : 16;
    __shared__ alignas(16) scalar_t room[Tiles<D, KEYS>::ROOM];
    Tiles<D, KEYS> tiles{room};
    const int first = query0 + threadIdx.x / LANES * (16 * GROUPS);
    int begin = 0, keys = (int)min(head.length, (int64_t)query0 + ROWS * GROUPS);
#ifdef TENSOR_CORES
    begin = (int)(blockIdx.y * head.part);
    keys = (int)min((int64_t)keys, begin + head.part);
    if (begin >= keys) return;
#endif
    tiles.fetch(head, begin);
    Fragment queries[GROUPS][D / 16];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            Some<4 * OWNED> all;
#pragma unroll
            for (int h = 0; h < OWNED; ++h)
#pragma unroll
                for (int k = 0; k < 4; k += RUN) {
                    const int row = first + g * 16 + own_row(h), depth = d * 16 + other_row(k);
                    const scalar_t* from = head.q + (int64_t)row * head.dim + depth;
                    Some<RUN> run = {};
                    if (head.aligned && row < head.length && depth < head.dim)
                        run = *reinterpret_cast<const Some<RUN>*>(from);
#pragma unroll
                    for (int j = 0; j < RUN; ++j) {
                        if (!head.aligned && row < head.length && depth + j < head.dim) run.at[j] = from[j];
                        all.at[element(h, k + j)] = run.at[j];
                    }
                }
            queries[g][d] = __builtin_bit_cast(Fragment, all);
        }
    Sums sums[GROUPS][D / 16] = {};
    float top[GROUPS][OWNED], total[GROUPS][OWNED] = {};
#pragma unroll
    for (int q = 0; q < GROUPS * OWNED; ++q) top[q / OWNED][q % OWNED] = unseen();
    for (int key0 = begin; key0 < keys; key0 += KEYS) {
        tiles.settle();
        __syncthreads();
        if (key0 + KEYS < keys) tiles.fetch(head, key0 + KEYS);
#ifdef TENSOR_CORES
        if (key0 >= first + 16 * GROUPS) continue;  // the warp sees none of these keys
#endif
        Sums scores[GROUPS][KEYS / 16] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                const Fragment key = tiles.keys(i * 16, d * 16);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) chain(scores[g][i], key, queries[g][d]);
            }
        Fragment weights[GROUPS][KEYS / 16];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int h = 0; h < OWNED; ++h) {
                const int query = first + g * 16 + own_row(h);
                float highest = top[g][h];
                if (key0 + KEYS > query0)  // only the last tiles have keys that come after a query
#pragma unroll
                    for (int i = 0; i < KEYS / 4; ++i)
                        if (key0 + i / 4 * 16 + other_row(i % 4) > query)
                            scores[g][i / 4][element(h, i % 4)] = unseen();
#pragma unroll
                for (int i = 0; i < KEYS / 4; ++i)
                    highest = fmaxf(highest, scores[g][i / 4][element(h, i % 4)]);
                highest = largest_of_row(highest);
                const float shrink = weight(top[g][h], highest, head.scale);
                top[g][h] = highest;
                total[g][h] *= shrink;
#pragma unroll
                for (int c = 0; c < D / 4; ++c) sums[g][c / 4][element(h, c % 4)] *= shrink;
#pragma unroll
                for (int i = 0; i < KEYS / 4; ++i) {
                    const int e = element(h, i % 4);
                    const float power = weight(scores[g][i / 4][e], highest, head.scale);
                    total[g][h] += power;
                    scores[g][i / 4][e] = power;
                }
            }
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) weights[g][i] = halves(scores[g][i]);
        }
#pragma unroll
        for (int c = 0; c < D / 16; ++c)
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                const Fragment value = tiles.values(c * 16, i * 16);
#pragma unroll
                for (int g = 0; g < GROUPS; ++g) chain(sums[g][c], value, weights[g][i]);
            }
        tiles.leave();
    }
#pragma unroll
    for (int q = 0; q < GROUPS * OWNED; ++q) {
        const int g = q / OWNED, h = q % OWNED, query = first + g * 16 + own_row(h);
        const float all = sum_of_row(total[g][h]), share = 1.0f / all;
#ifdef TENSOR_CORES
        if (head.sums) {
            if (query >= head.length || query < begin) continue;
#pragma unroll
            for (int c = 0; c < D / 4; ++c) {
                const int depth = c / 4 * 16 + other_row(c % 4);
                if (depth < head.dim)
                    head.sums[(int64_t)query * head.dim + depth] = sums[g][c / 4][element(h, c % 4)];
            }
            if (other_row(0) == 0) head.seen[query] = make_float2(top[g][h], all);
            continue;
        }
#endif
#pragma unroll
        for (int c = 0; c < D / 4; c += RUN) {
            const int depth = c / 4 * 16 + other_row(c % 4);
            Some<RUN> run;
#pragma unroll
            for (int j = 0; j < RUN; ++j)
                run.at[j] = scalar_t(sums[g][c / 4][element(h, c % 4 + j)] * share);
            if (query >= head.length) continue;
            scalar_t* to = head.y + (int64_t)query * head.dim + depth;
            if (head.aligned) {
                if (depth < head.dim) *reinterpret_cast<Some<RUN>*>(to) = run;
                continue;
            }
#pragma unroll
            for (int j = 0; j < RUN; ++j)
                if (depth + j < head.dim) to[j] = run.at[j];
        }
    }
}

#else

// COUNT rows of WIDTH elements, as floats.
template <int COUNT, int WIDTH, int PITCH>
__device__ __forceinline__ void stage(float* tile, const Head& head, const scalar_t* from,
                                      int64_t row, int column) {
#pragma unroll 3
    for (int p = threadIdx.x * VEC; p < COUNT * WIDTH; p += THREADS * VEC) {
        const Pack pack = load(head, from, row + p / WIDTH, column + p % WIDTH);
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile[p / WIDTH * PITCH + p % WIDTH + j] = float(pack.at[j]);
    }
}

// Of 16 x 16 threads, each has 8 queries and 4 keys of a tile, both 16 apart; so the 16 lanes of a
// query are in one wave, however wide. Queries and keys come a slice of their depth at a time.
template <int D, int GROUPS>
__device__ __forceinline__ void attend(const Head& head, int query0) {
    constexpr int QUERIES = ROWS * GROUPS;
    constexpr int KEYS = 64, PITCH = SLICE + 4, OWN = D / 16, GROUP = OWN < 4 ? OWN : 4;
    constexpr int VALUES = D <= 64 ? KEYS : 4096 / D;  // rows at a time
    constexpr int PAIRED = (QUERIES + KEYS) * PITCH, ROOM = VALUES * D;
    __shared__ alignas(16) float tile[PAIRED > ROOM ? PAIRED : ROOM];
    const int t = threadIdx.x, across = t % 16, first = query0 + t / 16;
    const int keys = (int)min(head.length, (int64_t)query0 + QUERIES);
    float sums[8][OWN] = {}, top[8], total[8] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) top[i] = unseen();
    for (int key0 = 0; key0 < keys; key0 += KEYS) {
        float scores[8][4] = {};
        for (int depth = 0; depth < head.dim; depth += SLICE) {
            __syncthreads();
            stage<QUERIES, SLICE, PITCH>(tile, head, head.q, query0, depth);
            stage<KEYS, SLICE, PITCH>(tile + QUERIES * PITCH, head, head.k, key0, depth);
            __syncthreads();
#pragma unroll 1
            for (int d = 0; d < SLICE; d += 4) {
                float4 right[4];
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    right[j] = *reinterpret_cast<const float4*>(
                        tile + (QUERIES + j * 16 + across) * PITCH + d);
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float4 left =
                        *reinterpret_cast<const float4*>(tile + (i * 16 + t / 16) * PITCH + d);
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        float sum = fmaf(left.x, right[j].x, scores[i][j]);
                        sum = fmaf(left.y, right[j].y, sum);
                        sum = fmaf(left.z, right[j].z, sum);
                        scores[i][j] = fmaf(left.w, right[j].w, sum);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float highest = top[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (key0 + j * 16 + across > first + i * 16) scores[i][j] = unseen();
                highest = fmaxf(highest, scores[i][j]);
            }
#pragma unroll
            for (int d = 1; d < 16; d *= 2) highest = fmaxf(highest, __shfl_xor(highest, d));
            const float shrink = exp2f((top[i] - highest) * head.scale);
            top[i] = highest;
            total[i] *= shrink;
#pragma unroll
            for (int c = 0; c < OWN; ++c) sums[i][c] *= shrink;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                scores[i][j] = exp2f((scores[i][j] - highest) * head.scale);
                total[i] += scores[i][j];
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (j * 16 % VALUES == 0) {
                __syncthreads();
                stage<VALUES, D, D>(tile, head, head.v, key0 + j * 16, 0);
                __syncthreads();
            }
#pragma unroll 1  // more at once would take more registers
            for (int owner = 0; owner < 16; ++owner) {  // of the weight of key j * 16 + owner
                const float* value = tile + (j * 16 % VALUES + owner) * D + across * GROUP;
                float weight[8];
#pragma unroll
                for (int i = 0; i < 8; ++i) weight[i] = __shfl(scores[i][j], owner, 16);
#pragma unroll
                for (int c = 0; c < OWN; ++c) {
                    const float right = value[c / GROUP * GROUP * 16 + c % GROUP];
#pragma unroll
                    for (int i = 0; i < 8; ++i) sums[i][c] = fmaf(weight[i], right, sums[i][c]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int d = 1; d < 16; d *= 2) total[i] += __shfl_xor(total[i], d);
        const int64_t row = first + i * 16;
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            const int depth = c / GROUP * GROUP * 16 + across * GROUP + c % GROUP;
            if (row < head.length && depth < head.dim)
                head.y[row * head.dim + depth] = scalar_t(sums[i][c] / total[i]);
        }
    }
}

#endif

template <int D, int GROUPS>
__global__ __launch_bounds__(THREADS) void attention_kernel(Head head, int64_t heads) {
    const int64_t skipped = blockIdx.x % heads * head.length * head.dim;
    head.q += skipped, head.k += skipped, head.v += skipped, head.y += skipped;
#ifdef TENSOR_CORES
    if (head.sums) {
        head.seen += blockIdx.y * head.rows + blockIdx.x % heads * head.length;
        head.sums += blockIdx.y * head.rows * head.dim + skipped;
    }
#endif
    // The last queries, which have the most keys, come first.
    attend<D, GROUPS>(head, (int)(gridDim.x / heads - 1 - blockIdx.x / heads) * (ROWS * GROUPS));
}

#ifdef TENSOR_CORES
// Puts the parts of a query's keys together, in their order.
__global__ __launch_bounds__(THREADS) void combine(Head head) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / head.dim;
    if (row >= head.rows) return;
    const int parts = (int)(row % head.length / head.part) + 1;  // which the query sees keys of
    float highest = unseen(), sum = 0.0f, total = 0.0f;
    for (int part = 0; part < parts; ++part) highest = fmaxf(highest, head.seen[part * head.rows + row].x);
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
        const float2 seen = head.seen[part * head.rows + row];
        const float share = weight(seen.x, highest, head.scale);
        total = fmaf(seen.y, share, total);
        sum = fmaf(head.sums[part * head.rows * head.dim + i], share, sum);
    }
    head.y[i] = scalar_t(sum / total);
}

// Keys of a part: all, unless there are too few tiles of queries to fill a GPU. Then about as many as give
// SPLIT_BELOW blocks alike shares of the work, which is half a square for each head; but not so few that
// putting parts together takes longer.
int64_t keys_of_part(int64_t heads, int64_t length) {
    constexpr int64_t LEAST = 256, TILE = 64;
    const int64_t tiles = (length + ROWS - 1) / ROWS;
    if (heads * tiles >= SPLIT_BELOW) return length;
    const int64_t pairs = heads * tiles * (tiles + 1) / 2 * ROWS, alike = pairs / SPLIT_BELOW;
    return ((alike > LEAST ? alike : LEAST) + TILE - 1) / TILE * TILE;
}
#endif

template <int D, int GROUPS>
int run(Head head, int64_t heads, hipStream_t stream) {
    const int64_t blocks = (head.length + ROWS * GROUPS - 1) / (ROWS * GROUPS) * heads;
#ifdef TENSOR_CORES
    head.rows = heads * head.length, head.part = GROUPS > 1 ? head.length : keys_of_part(heads, head.length);
    const int64_t parts = (head.length + head.part - 1) / head.part, left = parts > 1 ? parts * head.rows : 0;
    Scratch<float> sums(left * head.dim, stream);
    Scratch<float2> seen(left, stream);
    if (sums.error || seen.error) return (int)(sums.error ? sums.error : seen.error);
    head.sums = sums.data, head.seen = seen.data;
    attention_kernel<D, GROUPS><<<dim3((unsigned)blocks, (unsigned)parts), THREADS, 0, stream>>>(head, heads);
    if (left > 0)
        combine<<<(unsigned)((head.rows * head.dim + THREADS - 1) / THREADS), THREADS, 0, stream>>>(head);
#else
    attention_kernel<D, GROUPS><<<(unsigned)blocks, THREADS, 0, stream>>>(head, heads);
#endif
    return (int)hipGetLastError();
}

template <int D>
int launch(const Head& head, int64_t heads, hipStream_t stream) {
#ifdef TENSOR_CORES
    // Blocks of more queries read a key less often, those of fewer waste less of a short length and are more;
    // the sums of wide heads leave no choice.
    constexpr int MOST = D <= 96 ? 2 : 1;
    if (heads * ((head.length + ROWS * MOST - 1) / (ROWS * MOST)) < LARGE_FROM)
        return run<D, 1>(head, heads, stream);
    return run<D, MOST>(head, heads, stream);
#else
    return run<D, 2>(head, heads, stream);
#endif
}

extern "C" int attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                         int64_t batch, int64_t heads, int64_t length, int64_t dim,
                         hipStream_t stream) {
    if (batch == 0 || heads == 0 || length == 0 || dim == 0) return 0;
    if (dim > 256) return (int)hipErrorInvalidValue;  // a query's sums would not fit
    const uintptr_t pointers = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)y;
    const float scale = 1.44269504f / sqrtf((float)dim);
    const Head head = {q, k, v, y, length, (int)dim, scale, pointers % 16 == 0 && dim % VEC == 0};
#ifdef TENSOR_CORES
    // Between powers of two lie the heads of many models: padded to the next, half of the work is waste.
    if (dim > 32 && dim <= 48) return launch<48>(head, batch * heads, stream);
    if (dim > 64 && dim <= 80) return launch<80>(head, batch * heads, stream);
    if (dim > 80 && dim <= 96) return launch<96>(head, batch * heads, stream);
#endif
    const auto start = dim <= 32    ? launch<32>
                       : dim <= 64  ? launch<64>
                       : dim <= 128 ? launch<128>
                                    : launch<256>;
    return start(head, batch * heads, stream);
}
