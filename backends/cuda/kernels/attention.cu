// Causal attention in one pass on tensor cores, see portkern/attention_tiles.h; on Hopper heads of 16 bits by
// portkern/flash_attention.h. Of few keys a block has a whole head.
#define WARPS 4  // knob: 2 4
#define FLASH_FROM 256  // knob: 128 256 1024
#define LARGE_FROM 800  // knob: 400 800 1600
#define SPLIT_BELOW 264  // knob: 132 264 528
#define PART_FROM 256  // knob: 128 256 512
#define SHORT_FLOATS 16  // knob: 0 8 16 32
#define SHORT_HALVES 0  // knob: 0 8 16 32
#define FLASH_FILLS 100
#include <portkern/attention_tiles.h>
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
#include <portkern/flash_attention.h>
#endif

// Few keys: tiles would be mostly padding, and their long unrolled products would run once, from cold
// instructions. A block has a head in shared memory, by one round of loads, and multiplies in float32.
constexpr int SHORT = HALVES ? SHORT_HALVES : SHORT_FLOATS;

// What a block keeps: queries, keys and values; weights; their totals.
struct Short {
    int length, dim, groups, pitch;  // groups: packs of a row
    __host__ __device__ Short(int length, int dim)
        : length(length), dim(dim), groups((dim + VEC - 1) / VEC), pitch(groups * VEC + 4) {}
    __host__ __device__ int tile() const { return length * pitch; }
    __host__ __device__ int bytes() const { return (3 * tile() + (length + 1) * length) * (int)sizeof(float); }
};

__device__ __forceinline__ float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }

__device__ __forceinline__ void load_short(float* staged, const scalar_t* __restrict__ q,
                                           const scalar_t* __restrict__ k, const scalar_t* __restrict__ v,
                                           const Short& of, int access) {
    const scalar_t* const from[3] = {q, k, v};
#pragma unroll 2
    for (int p = threadIdx.x; p < of.length * of.groups; p += THREADS) {
        const int row = p / of.groups, column = p % of.groups * VEC, left = of.dim - column;
        Pack packs[3] = {};
#pragma unroll
        for (int t = 0; t < 3; ++t) {
            const scalar_t* at = from[t] + row * of.dim + column;
            if (access == 16) packs[t] = *reinterpret_cast<const Pack*>(at);
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (access < 16 && j < left) packs[t].at[j] = at[j];
        }
#pragma unroll
        for (int t = 0; t < 3; ++t)
#pragma unroll
            for (int j = 0; j < VEC; j += 4)
                *reinterpret_cast<float4*>(staged + t * of.tile() + row * of.pitch + column + j) =
                    make_float4(float(packs[t].at[j]), float(packs[t].at[j + 1]), float(packs[t].at[j + 2]),
                                float(packs[t].at[j + 3]));
    }
}

// Four lanes have the score of a query and a key; those of keys after the query are not written.
__device__ __forceinline__ void score_short(float* weights, const float* staged, const Short& of) {
    const int pairs = of.length * of.length, part = threadIdx.x % 4;
    for (int from = 0; from < pairs; from += THREADS / 4) {
        const int pair = from + threadIdx.x / 4, row = pair / of.length, key = pair % of.length;
        const bool sees = pair < pairs && key <= row;
        const float *left = staged + row * of.pitch, *right = staged + of.tile() + key * of.pitch;
        float sum = 0.0f;
#pragma unroll 4
        for (int d = part * 4; d < of.dim && sees; d += 16) {
            const float4 a = four(left + d), b = four(right + d);
            sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
        }
        sum = lane_reduce<Sum>(sum, 4);
        if (sees && part == 0) weights[pair] = sum;
    }
}

__global__ __launch_bounds__(THREADS) void attention_short(
    const scalar_t* __restrict__ q, const scalar_t* __restrict__ k, const scalar_t* __restrict__ v,
    scalar_t* __restrict__ y, int length, int dim, float scale, int access) {
    extern __shared__ __align__(128) unsigned char shared[];
    const Short of(length, dim);
    float* staged = reinterpret_cast<float*>(shared);
    float *weights = staged + 3 * of.tile(), *totals = weights + length * length;
    const int64_t head = (int64_t)blockIdx.x * length * dim;
    load_short(staged, q + head, k + head, v + head, of, access);
    __syncthreads();
    score_short(weights, staged, of);
    __syncthreads();
    for (int row = threadIdx.x / 32; row < length; row += WARPS) {
        const int key = threadIdx.x % 32;
        const float own = key <= row ? weights[row * length + key] : unseen();
        const float share = weight(own, finite(lane_reduce<Max>(own, 32)), scale);
        const float total = lane_reduce<Sum>(share, 32);
        if (key <= row) weights[row * length + key] = share;
        if (key == 0) totals[row] = total;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < length * of.groups; p += THREADS) {
        const int row = p / of.groups, column = p % of.groups * VEC;
        float sums[VEC] = {};
        for (int key = 0; key <= row; ++key)
#pragma unroll
            for (int j = 0; j < VEC; j += 4) {
                const float share = weights[row * length + key];
                const float4 value = four(staged + 2 * of.tile() + key * of.pitch + column + j);
                sums[j] = fmaf(share, value.x, sums[j]);
                sums[j + 1] = fmaf(share, value.y, sums[j + 1]);
                sums[j + 2] = fmaf(share, value.z, sums[j + 2]);
                sums[j + 3] = fmaf(share, value.w, sums[j + 3]);
            }
        Pack result;
#pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = scalar_t(quotient(sums[j], totals[row]));
        scalar_t* to = y + head + row * dim + column;
        if (access == 16) *reinterpret_cast<Pack*>(to) = result;
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            if (access < 16 && column + j < dim) to[j] = result.at[j];
    }
}

int run_short(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads,
              int64_t length, int64_t dim, cudaStream_t stream) {
    const int bytes = Short((int)length, (int)dim).bytes();
    if (bytes > 48 << 10)
        cudaFuncSetAttribute(attention_short, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    attention_short<<<(unsigned)heads, THREADS, bytes, stream>>>(
        q, k, v, y, (int)length, (int)dim, 1.44269504f / sqrtf((float)dim), access_of(q, k, v, y, dim));
    return (int)cudaGetLastError();
}

// Large tiles of queries read a key less often, small ones waste less of a short length and make more
// blocks; float32 lives on the reads of shared memory and is large sooner. Wide rows leave no choice.
template <int D>
int launch(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads,
           int64_t length, int64_t dim, cudaStream_t stream) {
    constexpr int MOST = Tile<D, 4>::row_bytes <= (HALVES ? 256 : 384) ? 4 : 2;
    constexpr int QUERIES = Tile<D, MOST>::queries, FROM = HALVES ? LARGE_FROM : LARGE_FROM / 2;
    const bool large = heads * ((length + QUERIES - 1) / QUERIES) >= FROM;
    const Causal sight = {length};
    return large ? run<D, MOST>(q, k, v, y, heads, sight, dim, stream)
                 : run<D, 2>(q, k, v, y, heads, sight, dim, stream);
}

extern "C" int attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                         int64_t batch, int64_t heads, int64_t length, int64_t dim,
                         cudaStream_t stream) {
    if (batch == 0 || heads == 0 || length == 0 || dim == 0) return 0;
    if (dim > 256) return (int)cudaErrorInvalidValue;  // a query's sums would not fit
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
    const Causal sight = {length};
    if (flash::takes(q, k, v, y, batch * heads, sight, dim))
        return flash::start(q, k, v, y, batch * heads, sight, dim, stream);
#endif
    if (length <= SHORT) return run_short(q, k, v, y, batch * heads, length, dim, stream);
    // Between powers of two lie the heads of many models: padded to the next, half of the work is waste.
    const auto start = dim <= 32    ? launch<32>
                       : dim <= 64  ? launch<64>
                       : dim <= 80  ? launch<80>
                       : dim <= 96  ? launch<96>
                       : dim <= 128 ? launch<128>
                                    : launch<256>;
    return start(q, k, v, y, batch * heads, length, dim, stream);
}
