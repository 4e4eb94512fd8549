// Causal attention in one pass: a block keeps the sums of the values of 128 queries and goes over
// the keys up to the last of them, a tile at a time. As a query's maximum grows, what was summed
// before is scaled down. Products are FMA or, for halves on CDNA, of the matrix cores.
#define SLICE 32  // knob: 16 32

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access
constexpr int THREADS = 256, QUERIES = 128;

struct alignas(16) Pack {
    scalar_t at[VEC];
};

// One head. `scale` is for powers of 2.
struct Head {
    const scalar_t *q, *k, *v;
    scalar_t* y;
    int64_t length;
    int dim;
    float scale;
    bool aligned;
};

__device__ __forceinline__ float lowest() { return __int_as_float(0xff800000); }  // -inf

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

// These macros exist in the device's pass only, so the host launches the same grid either way.
#if (defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)) && !defined(PORTKERN_FLOAT32)

typedef float Sums __attribute__((ext_vector_type(4)));
#ifdef PORTKERN_FLOAT16
typedef _Float16 Four __attribute__((ext_vector_type(4)));
#define MFMA __builtin_amdgcn_mfma_f32_16x16x16f16
#else
typedef short Four __attribute__((ext_vector_type(4)));
#define MFMA __builtin_amdgcn_mfma_f32_16x16x16bf16_1k
#endif

struct alignas(8) Quad {
    scalar_t at[4];
};

// A wave has 2 x 16 queries. All is transposed: keys times queries gives a lane the scores of query
// l % 16 with 4 neighbouring keys from l / 16 * 4, which is just how the next product, of values
// and weights, wants them; and all lanes with something of a query have its maximum and total.
template <int D>
__device__ __forceinline__ void attend(const Head& head, int query0) {
    constexpr int KEYS = D <= 64 ? 64 : 4096 / D, SHARE = KEYS * D / VEC / THREADS;
    constexpr int PITCH_K = D + 8, PITCH_V = KEYS + 8;  // against bank conflicts
    __shared__ alignas(16) scalar_t tile_k[KEYS * PITCH_K], tile_v[D * PITCH_V];
    const int t = threadIdx.x, column = t % 16, part = t % 64 / 16 * 4;
    const int first = query0 + t / 64 * 32 + column;
    const int keys = (int)min(head.length, (int64_t)query0 + QUERIES);
    Four queries[2][D / 16];
#pragma unroll
    for (int g = 0; g < 2; ++g)
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            Quad quad;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int64_t row = first + g * 16, depth = d * 16 + part + e;
                const bool inside = row < head.length && depth < head.dim;
                quad.at[e] = inside ? head.q[row * head.dim + depth] : scalar_t(0.0f);
            }
            queries[g][d] = __builtin_bit_cast(Four, quad);
        }
    Pack next_k[SHARE], next_v[SHARE];
    const auto fetch = [&](int key0) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            next_k[i] = load(head, head.k, key0 + p * VEC / D, p * VEC % D);
            next_v[i] = load(head, head.v, key0 + p % KEYS, p / KEYS * VEC);
        }
    };
    Sums sums[2][D / 16] = {};
    float top[2] = {lowest(), lowest()}, total[2] = {};
    fetch(0);
    for (int key0 = 0; key0 < keys; key0 += KEYS) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            *reinterpret_cast<Pack*>(tile_k + p * VEC / D * PITCH_K + p * VEC % D) = next_k[i];
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                tile_v[(p / KEYS * VEC + j) * PITCH_V + p % KEYS] = next_v[i].at[j];
        }
        __syncthreads();
        if (key0 + KEYS < keys) fetch(key0 + KEYS);
        Sums scores[2][KEYS / 16] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                const Four key = *reinterpret_cast<const Four*>(
                    tile_k + (i * 16 + column) * PITCH_K + d * 16 + part);
#pragma unroll
                for (int g = 0; g < 2; ++g)
                    scores[g][i] = MFMA(key, queries[g][d], scores[g][i], 0, 0, 0);
            }
        Four weights[2][KEYS / 16];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            float highest = top[g];
            if (key0 + KEYS > query0)  // only the last tiles have keys that come after a query
#pragma unroll
                for (int i = 0; i < KEYS / 4; ++i)
                    if (key0 + i / 4 * 16 + part + i % 4 > first + g * 16)
                        scores[g][i / 4][i % 4] = lowest();
#pragma unroll
            for (int i = 0; i < KEYS / 4; ++i) highest = fmaxf(highest, scores[g][i / 4][i % 4]);
            highest = fmaxf(highest, __shfl_xor(highest, 16));
            highest = fmaxf(highest, __shfl_xor(highest, 32));
            const float shrink = exp2f((top[g] - highest) * head.scale);
            top[g] = highest;
            total[g] *= shrink;
#pragma unroll
            for (int c = 0; c < D / 16; ++c) sums[g][c] *= shrink;
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                Quad quad;
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const float weight = exp2f((scores[g][i][e] - highest) * head.scale);
                    total[g] += weight;
                    quad.at[e] = scalar_t(weight);
                }
                weights[g][i] = __builtin_bit_cast(Four, quad);
            }
        }
#pragma unroll
        for (int c = 0; c < D / 16; ++c)
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                const Four value = *reinterpret_cast<const Four*>(
                    tile_v + (c * 16 + column) * PITCH_V + i * 16 + part);
#pragma unroll
                for (int g = 0; g < 2; ++g)
                    sums[g][c] = MFMA(value, weights[g][i], sums[g][c], 0, 0, 0);
            }
        __syncthreads();
    }
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        total[g] += __shfl_xor(total[g], 16);
        total[g] += __shfl_xor(total[g], 32);
        const int64_t row = first + g * 16;
#pragma unroll
        for (int c = 0; c < D / 4; ++c) {
            const int depth = c / 4 * 16 + part + c % 4;
            if (row < head.length && depth < head.dim)
                head.y[row * head.dim + depth] = scalar_t(sums[g][c / 4][c % 4] / total[g]);
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
template <int D>
__device__ __forceinline__ void attend(const Head& head, int query0) {
    constexpr int KEYS = 64, PITCH = SLICE + 4, OWN = D / 16, GROUP = OWN < 4 ? OWN : 4;
    constexpr int VALUES = D <= 64 ? KEYS : 4096 / D;  // rows at a time
    constexpr int PAIRED = (QUERIES + KEYS) * PITCH, ROOM = VALUES * D;
    __shared__ alignas(16) float tile[PAIRED > ROOM ? PAIRED : ROOM];
    const int t = threadIdx.x, across = t % 16, first = query0 + t / 16;
    const int keys = (int)min(head.length, (int64_t)query0 + QUERIES);
    float sums[8][OWN] = {}, top[8], total[8] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) top[i] = lowest();
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
                if (key0 + j * 16 + across > first + i * 16) scores[i][j] = lowest();
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

template <int D>
__global__ __launch_bounds__(THREADS) void attention_kernel(Head head, int64_t heads) {
    const int64_t skipped = blockIdx.x % heads * head.length * head.dim;
    head.q += skipped, head.k += skipped, head.v += skipped, head.y += skipped;
    // The last queries, which have the most keys, come first.
    attend<D>(head, (int)(gridDim.x / heads - 1 - blockIdx.x / heads) * QUERIES);
}

extern "C" int attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                         int64_t batch, int64_t heads, int64_t length, int64_t dim,
                         hipStream_t stream) {
    if (batch == 0 || heads == 0 || length == 0 || dim == 0) return 0;
    if (dim > 256) return (int)hipErrorInvalidValue;  // a query's sums would not fit
    const bool pointers = ((uintptr_t)q | (uintptr_t)k | (uintptr_t)v) % 16 == 0;
    const float scale = 1.44269504f / sqrtf((float)dim);
    const Head head = {q, k, v, y, length, (int)dim, scale, pointers && dim % VEC == 0};
    const int64_t blocks = (length + QUERIES - 1) / QUERIES * batch * heads;
    const auto kernel = dim <= 32    ? attention_kernel<32>
                        : dim <= 64  ? attention_kernel<64>
                        : dim <= 128 ? attention_kernel<128>
                                     : attention_kernel<256>;
    kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(head, batch * heads);
    return (int)hipGetLastError();
}
