// Sum over the middle axis of three. inner == 1: rows; narrow ones by a few lanes each, wide ones by a
// block, a few very wide ones by several blocks. inner > 1: columns; a block takes 128 bytes of them
// and all rows, or a part of the rows where that makes too few blocks; narrow columns are read in the
// order of memory, and short sums are a thread's each.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512 (hip: 512)
#define UNROLL 8  // knob: 1 2 4 8 (hip: 4)
#define FILL 1024  // knob: 512 1024 2048

// `partial` where several blocks share a sum, else null.
__device__ __forceinline__ void tell(float* partial, scalar_t* y, int64_t i, float value) {
    if (partial) partial[i] = value;
    else y[i] = scalar_t(value);
}

// ---- Rows

template <bool WHOLE>
__device__ __forceinline__ float row_sum(const Row<WHOLE>& row, int64_t first, int64_t last,
                                         int64_t step) {
    float total[UNROLL] = {};
    for (int64_t i = first; i < last; i += step * UNROLL) {
        Pack values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (i + u * step < last) values[u] = row.load(i + u * step);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (i + u * step < last && row.has(i + u * step, j)) total[u] += float(values[u].at[j]);
    }
    for (int u = 1; u < UNROLL; ++u) total[0] += total[u];
    return total[0];
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void sum_narrow(const scalar_t* __restrict__ x,
                                                    scalar_t* __restrict__ y, int64_t rows,
                                                    int64_t length, int lanes) {
    const int64_t row = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / lanes;
    const Row<WHOLE> in(x, row < rows ? row : rows - 1, length, rows);
    const float total = lane_reduce<Sum>(row_sum(in, threadIdx.x % lanes, in.packs(), lanes), lanes);
    if (threadIdx.x % lanes == 0 && row < rows) y[row] = scalar_t(total);
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void sum_wide(const scalar_t* __restrict__ x,
                                                  scalar_t* __restrict__ y, float* partial,
                                                  int64_t rows, int64_t length, int64_t splits) {
    __shared__ float warps[WARPS_MOST];
    const Row<WHOLE> in(x, blockIdx.x / splits, length, rows);
    const Part part(in.packs(), splits, blockIdx.x % splits);
    const float total = row_sum(in, part.first + threadIdx.x, part.last, blockDim.x);
    const float all = block_reduce<Sum>(total, warps);
    if (threadIdx.x == 0) tell(partial, y, blockIdx.x, all);
}

template <bool WHOLE>
void launch_rows(const scalar_t* x, scalar_t* y, float* partial, int64_t rows, int64_t length,
                 int64_t splits, cudaStream_t stream) {
    const int64_t packs = most_packs(length, WHOLE);
    const int lanes = lanes_for(packs, UNROLL);
    if (splits == 1 && packs <= (int64_t)WARP_SIZE_MIN * UNROLL * 2) {
        const int64_t blocks = (rows * lanes + BLOCK - 1) / BLOCK;
        sum_narrow<WHOLE><<<(unsigned)blocks, BLOCK, 0, stream>>>(x, y, rows, length, lanes);
        return;
    }
    unsigned threads = WARP_SIZE_MAX;  // short rows would leave most of a large block idle
    while (threads < BLOCK && threads * UNROLL < packs / splits) threads *= 2;
    sum_wide<WHOLE><<<(unsigned)(rows * splits), threads, 0, stream>>>(x, y, partial, rows, length,
                                                                       splits);
}

// ---- Columns

template <int V>
struct alignas(V * sizeof(scalar_t)) Some {
    scalar_t at[V];
};

template <int V>
constexpr int ACROSS = V == 1 ? 32 : 8;  // packs of columns per block

template <int V>
__global__ __launch_bounds__(BLOCK) void sum_columns(const scalar_t* __restrict__ x,
                                                     scalar_t* __restrict__ y, float* partial,
                                                     int64_t reduce, int64_t inner, int64_t tiles,
                                                     int64_t splits) {
    constexpr int WIDE = ACROSS<V>, TALL = BLOCK / WIDE;
    __shared__ float sums[TALL][WIDE * V];
    const int64_t outer = blockIdx.x / (tiles * splits), split = blockIdx.x / tiles % splits;
    const int64_t width = inner / V, column = blockIdx.x % tiles * WIDE + threadIdx.x;
    const Part part(reduce, splits, split);
    const Some<V>* in = reinterpret_cast<const Some<V>*>(x + outer * reduce * inner) + column;
    float total[V] = {};
    for (int64_t row = part.first + threadIdx.y; column < width && row < part.last;
         row += TALL * UNROLL) {
        Some<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (row + u * TALL < part.last) values[u] = in[(row + u * TALL) * width];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (row + u * TALL < part.last) total[j] += float(values[u].at[j]);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) sums[threadIdx.y][threadIdx.x * V + j] = total[j];
    for (int half = TALL / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y >= half) continue;  // it still meets the others at the next barrier
        for (int j = 0; j < V; ++j)
            sums[threadIdx.y][threadIdx.x * V + j] += sums[threadIdx.y + half][threadIdx.x * V + j];
    }
    if (threadIdx.y > 0 || column >= width) return;
    if (partial) {
        float* to = partial + (outer * splits + split) * inner + column * V;
        for (int j = 0; j < V; ++j) to[j] = sums[0][threadIdx.x * V + j];
        return;
    }
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.at[j] = scalar_t(sums[0][threadIdx.x * V + j]);
    reinterpret_cast<Some<V>*>(y + outer * inner)[column] = result;
}

// Fewer columns than a warp has lanes: threads go through memory in its order, a multiple of `inner`
// at a time, so that each stays in its column.
__global__ __launch_bounds__(BLOCK) void sum_few_columns(const scalar_t* __restrict__ x,
                                                         scalar_t* __restrict__ y, float* partial,
                                                         int64_t reduce, int inner, int64_t splits) {
    __shared__ float sums[BLOCK];
    const int64_t outer = blockIdx.x / splits;
    const Part part(reduce, splits, blockIdx.x % splits);
    const int active = BLOCK / inner * inner;
    const scalar_t* in = x + outer * reduce * inner;
    float total[UNROLL] = {};
    if (threadIdx.x < active)
        for (int64_t i = part.first * inner + threadIdx.x; i < part.last * inner; i += active * UNROLL)
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                if (i + u * active < part.last * inner) total[u] += float(in[i + u * active]);
    for (int u = 1; u < UNROLL; ++u) total[0] += total[u];
    sums[threadIdx.x] = total[0];
    // Halves of the rows of `inner` sums meet, as long as there are several.
    for (int rows = BLOCK / inner; rows > 1; rows = (rows + 1) / 2) {
        const int half = (rows + 1) / 2, other = threadIdx.x + half * inner;
        __syncthreads();
        if (threadIdx.x < half * inner && other < rows * inner) sums[threadIdx.x] += sums[other];
    }
    if (threadIdx.x < inner) tell(partial, y, (int64_t)blockIdx.x * inner + threadIdx.x, sums[threadIdx.x]);
}

// V sums of few terms are a thread's.
template <int V>
__global__ __launch_bounds__(BLOCK) void sum_short(const scalar_t* __restrict__ x,
                                                   scalar_t* __restrict__ y, int64_t packs,
                                                   int64_t reduce, int64_t width) {
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= packs) return;
    const Some<V>* in = reinterpret_cast<const Some<V>*>(x) + i / width * reduce * width + i % width;
    float total[V] = {};
#pragma unroll 4
    for (int64_t row = 0; row < reduce; ++row) {
        const Some<V> values = in[row * width];
#pragma unroll
        for (int j = 0; j < V; ++j) total[j] += float(values.at[j]);
    }
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.at[j] = scalar_t(total[j]);
    reinterpret_cast<Some<V>*>(y)[i] = result;
}

template <int V>
void launch_short(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                  cudaStream_t stream) {
    const int64_t packs = outer * inner / V;
    sum_short<V><<<(unsigned)((packs + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(x, y, packs, reduce,
                                                                                inner / V);
}

// What several blocks summed, of all sums side by side.
__global__ __launch_bounds__(BLOCK) void sum_partials(const float* __restrict__ partial,
                                                      scalar_t* __restrict__ y, int64_t inner,
                                                      int64_t splits, int lanes, int64_t sums) {
    const int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / lanes;
    const float* from = partial + i / inner * splits * inner + i % inner;
    float total = 0.0f;
    for (int64_t s = threadIdx.x % lanes; i < sums && s < splits; s += lanes) total += from[s * inner];
    total = lane_reduce<Sum>(total, lanes);
    if (threadIdx.x % lanes == 0 && i < sums) y[i] = scalar_t(total);
}

template <int V>
void launch_columns(const scalar_t* x, scalar_t* y, float* partial, int64_t outer, int64_t reduce,
                    int64_t inner, int64_t splits, cudaStream_t stream) {
    const int64_t tiles = (inner / V + ACROSS<V> - 1) / ACROSS<V>;
    const dim3 block(ACROSS<V>, BLOCK / ACROSS<V>);
    sum_columns<V><<<(unsigned)(outer * tiles * splits), block, 0, stream>>>(x, y, partial, reduce,
                                                                             inner, tiles, splits);
}

constexpr int64_t SHORT = 8;  // terms of a thread's sum at most

// How many blocks share a sum.
int64_t splits_of(int64_t outer, int64_t reduce, int64_t inner, bool whole) {
    if (reduce <= SHORT) return 1;
    if (inner == 1) return splits_for(outer, most_packs(reduce, whole), FILL, 4 * BLOCK);
    if (inner < 32) return splits_for(outer, reduce * inner, FILL, 16 * BLOCK);
    return splits_for(outer * ((inner + 31) / 32), reduce, FILL, 64);
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    const int64_t sums = outer * inner;
    if (sums == 0) return 0;
    const bool whole = are_whole((uintptr_t)x | (inner == 1 ? 0 : (uintptr_t)y),
                                 inner == 1 ? reduce : inner);
    const int64_t splits = splits_of(outer, reduce, inner, whole);
    Scratch<float> scratch(splits > 1 ? sums * splits : 0, stream);
    if (scratch.error) return (int)scratch.error;
    float* partial = scratch.data;
    if (reduce <= SHORT)
        (whole && inner > 1 ? launch_short<VEC> : launch_short<1>)(x, y, outer, reduce, inner, stream);
    else if (inner == 1)
        (whole ? launch_rows<true> : launch_rows<false>)(x, y, partial, outer, reduce, splits, stream);
    else if (inner < 32)
        sum_few_columns<<<(unsigned)(outer * splits), BLOCK, 0, stream>>>(x, y, partial, reduce,
                                                                          (int)inner, splits);
    else
        (whole ? launch_columns<VEC> : launch_columns<1>)(x, y, partial, outer, reduce, inner, splits,
                                                          stream);
    if (partial) {
        const int lanes = inner >= 32 ? 1 : lanes_for(splits, 2);
        sum_partials<<<(unsigned)((sums * lanes + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(
            partial, y, inner, splits, lanes, sums);
    }
    return (int)cudaGetLastError();
}
