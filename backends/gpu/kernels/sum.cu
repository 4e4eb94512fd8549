// Sum over the middle axis of three. inner == 1: rows; short ones by a thread each, narrow ones by a few
// lanes, wide ones by a block, a few very wide ones by several blocks. inner > 1: columns; a block takes
// 128 bytes of them and all rows, or a part of the rows where that makes too few blocks; narrow columns
// are read in the order of memory, of many short sums as slabs, and the shortest are a thread's each.
#include <portkern/copy.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 8  // knob: 1 2 4 8
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

// `partial` where several blocks share a sum, else null.
__device__ __forceinline__ void tell(float* partial, scalar_t* y, int64_t i, float value) {
    if (partial) partial[i] = value;
    else y[i] = scalar_t(value);
}

// ---- Rows

template <class R>
__device__ __forceinline__ float row_sum(const R& row, const Part& part, int me, int members) {
    float total[R::VEC] = {};
    each_pack<UNROLL>(row, part, me, members, scalar_t(0.0f), [&](const auto& values, int64_t) {
        for (const auto& pack : values)
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) total[j] += float(pack.at[j]);
    });
    for (int j = 1; j < R::VEC; ++j) total[0] += total[j];
    return total[0];
}

template <class R>
__global__ __launch_bounds__(BLOCK) void sum_narrow(const scalar_t* __restrict__ x,
                                                    scalar_t* __restrict__ y, int64_t rows,
                                                    int64_t length, int lanes) {
    const int64_t row = group_of_lanes(lanes);
    const R in(x, row < rows ? row : rows - 1, length);
    const float total = lane_reduce<Sum>(row_sum(in, Part(in.packs, 1, 0), threadIdx.x % lanes, lanes), lanes);
    if (threadIdx.x % lanes == 0 && row < rows) y[row] = scalar_t(total);
}

// Rows of at most SHORT_ROW elements.
__global__ __launch_bounds__(SHORT_BLOCK) void sum_short_rows(const scalar_t* __restrict__ x,
                                                        scalar_t* __restrict__ y, int64_t rows,
                                                        int64_t length) {
    each_short_row(x, rows, length, [&](int64_t row, const Single& in) {
        y[row] = scalar_t(row_sum(in, Part(in.packs, 1, 0), 0, 1));
    });
}

// Narrow ragged rows, of at most LOCAL_MOST elements for each of a warp's lanes.
__global__ __launch_bounds__(LOCAL_BLOCK) void sum_local(const scalar_t* __restrict__ x,
                                                         scalar_t* __restrict__ y, int64_t rows,
                                                         int length, int lanes) {
    __shared__ Image<LOCAL_BLOCK, LOCAL_MOST / VEC> image;
    const BlockRows own(rows, blockDim.x / lanes);
    const scalar_t* here = image.fetch(x, own.first * length, own.count * length, rows * length, blockDim.x);
    const int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const int last = row < own.count ? (row + 1) * length : 0;
    float total = 0.0f;
#pragma unroll 4
    for (int i = row * length + lane; i < last; i += lanes) total += float(here[i]);
    total = lane_reduce<Sum>(total, lanes);
    if (lane == 0 && row < own.count) y[own.first + row] = scalar_t(total);
}

template <class R>
__global__ __launch_bounds__(threads_most<R>(BLOCK)) void sum_wide(const scalar_t* __restrict__ x,
                                                                   scalar_t* __restrict__ y,
                                                                   float* partial, int64_t length,
                                                                   unsigned splits) {
    let_next_begin();
    __shared__ float warps[WARPS_MOST];
    const R in(x, blockIdx.x / splits, length);
    const Part part(in.packs, splits, blockIdx.x % splits);
    const float total = row_sum(in, part, threadIdx.x, blockDim.x);
    const float all = block_reduce<Sum>(total, warps);
    if (threadIdx.x == 0) tell(partial, y, blockIdx.x, all);
}

template <class R>
void launch_rows(const scalar_t* x, scalar_t* y, float* partial, int64_t rows, int64_t length,
                 unsigned splits, cudaStream_t stream) {
    const int64_t packs = R::most(length);
    const int lanes = lanes_for(packs, 2);
    if (!R::WHOLE && are_short(rows, length)) {
        sum_short_rows<<<short_blocks(rows), SHORT_BLOCK, 0, stream>>>(x, y, rows, length);
        return;
    }
    if (!R::WHOLE && splits == 1 && length <= LOCAL_MOST * WARP_SIZE_MIN) {
        const int members = local_lanes(length);
        const Blocks blocks = blocks_for(rows * members, LOCAL_BLOCK);
        sum_local<<<blocks.count, blocks.threads, 0, stream>>>(x, y, rows, (int)length, members);
        return;
    }
    if (splits == 1 && packs <= (int64_t)WARP_SIZE_MIN * UNROLL) {
        const Blocks blocks = blocks_for(rows * lanes, BLOCK);
        sum_narrow<R><<<blocks.count, blocks.threads, 0, stream>>>(x, y, rows, length, lanes);
        return;
    }
    const unsigned threads = threads_for(packs / splits, UNROLL, threads_most<R>(BLOCK));
    sum_wide<R><<<(unsigned)(rows * splits), threads, 0, stream>>>(x, y, partial, length, splits);
}

// ---- Columns

template <int V>
__device__ __forceinline__ void add(float (&total)[V], const Some<V>& values) {
#pragma unroll
    for (int j = 0; j < V; ++j) total[j] += float(values.at[j]);
}

template <int V>
constexpr int ACROSS = V == 1 ? 32 : 8;  // packs of columns per block, or more where there are few rows

// Of 64 registers: bounded only by its threads, it is given fewer or more.
template <int V>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 1024 / BLOCK) void sum_columns(const scalar_t* __restrict__ x,
                                                            scalar_t* __restrict__ y,
                                                            float* partial, int64_t reduce,
                                                            int64_t inner, unsigned tiles,
                                                            unsigned splits) {
    let_next_begin();
    __shared__ float sums[BLOCK * V];
    const int wide = blockDim.x, tall = blockDim.y;
    const int64_t outer = blockIdx.x / (tiles * splits), split = blockIdx.x / tiles % splits;
    const int64_t width = inner / V, column = (int64_t)(blockIdx.x % tiles) * wide + threadIdx.x;
    const Part part(reduce, splits, split);
    const Some<V>* in = reinterpret_cast<const Some<V>*>(x + outer * reduce * inner) + column;
    const int64_t last = column < width ? part.last : 0;
    float total[V] = {};
    int64_t row = part.first + threadIdx.y;
    // Loads without conditions are on their way together, and so are the last ones.
    for (; row + (UNROLL - 1) * tall < last; row += tall * UNROLL) {
        Some<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) values[u] = in[(row + u * tall) * width];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) add(total, values[u]);
    }
    if (row < last) {
        Some<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (row + u * tall < last) values[u] = in[(row + u * tall) * width];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (row + u * tall < last) add(total, values[u]);
    }
    float* mine = sums + (threadIdx.y * wide + threadIdx.x) * V;
#pragma unroll
    for (int j = 0; j < V; ++j) mine[j] = total[j];
    for (int half = tall / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y >= half) continue;  // it still meets the others at the next barrier
#pragma unroll
        for (int j = 0; j < V; ++j) mine[j] += mine[half * wide * V + j];
    }
    if (threadIdx.y > 0 || column >= width) return;
    if (partial) {
        float* to = partial + (outer * splits + split) * inner + column * V;
        for (int j = 0; j < V; ++j) to[j] = mine[j];
        return;
    }
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.at[j] = scalar_t(mine[j]);
    reinterpret_cast<Some<V>*>(y + outer * inner)[column] = result;
}

// Fewer columns than a warp has lanes: threads go through memory in its order, a multiple of `inner`
// packs at a time, so that each of a thread's V elements stays in its column. Of short sums a block
// has several, of `members` threads each.
template <int V>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 1024 / BLOCK) void sum_few_columns(const scalar_t* __restrict__ x,
                                                         scalar_t* __restrict__ y, float* partial,
                                                         int64_t outer, int64_t reduce, int inner,
                                                         unsigned splits, int members) {
    let_next_begin();
    __shared__ float all_sums[BLOCK * V];
    const int me = threadIdx.x % members, first = threadIdx.x - me;
    const int64_t group = ((int64_t)blockIdx.x * BLOCK + first) / members, packs = reduce * inner / V;
    const int active = members / inner * inner;
    const Part part((packs + inner - 1) / inner, splits, group % splits);
    const int64_t last = group < outer * splits ? min(part.last * inner, packs) : 0;
    const Some<V>* in = reinterpret_cast<const Some<V>*>(x + group / splits * reduce * inner);
    float total[V] = {};
    int64_t i = me < active ? part.first * inner + me : last;
    for (; i + (UNROLL - 1) * active < last; i += active * UNROLL) {
        Some<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) values[u] = in[i + u * active];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) add(total, values[u]);
    }
    if (i < last) {  // these, too, are on their way together
        Some<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (i + u * active < last) values[u] = in[i + u * active];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (i + u * active < last) add(total, values[u]);
    }
    float* sums = all_sums + first * V;
#pragma unroll
    for (int j = 0; j < V; ++j) sums[me * V + j] = total[j];
    // Halves of the rows of `inner` sums meet, as long as there are several.
    for (int rows = members / inner * V; rows > 1; rows = (rows + 1) / 2) {
        const int half = (rows + 1) / 2;
        __syncthreads();
        for (int at = me; at < half * inner; at += members)
            if (at + half * inner < rows * inner) sums[at] += sums[at + half * inner];
    }
    __syncthreads();
    if (me < inner && group < outer * splits) tell(partial, y, group * inner + me, sums[me]);
}

template <int V>
void launch_few(const scalar_t* x, scalar_t* y, float* partial, int64_t outer, int64_t reduce,
                int64_t inner, unsigned splits, cudaStream_t stream) {
    const int64_t packs = reduce * inner / V;
    int members = WARP_SIZE_MIN;  // `inner` is smaller
    while (members < BLOCK && members * UNROLL < packs / splits) members *= 2;
    const int64_t blocks = (outer * splits * members + BLOCK - 1) / BLOCK;
    sum_few_columns<V><<<(unsigned)blocks, BLOCK, 0, stream>>>(x, y, partial, outer, reduce,
                                                               (int)inner, splits, members);
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
#pragma unroll 8
    for (int64_t row = 0; row < reduce; ++row) add(total, in[row * width]);
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

// Many sums of few columns and SLAB_TERMS terms at most: a block brings in some slabs as they lie, a sum is a
// thread's. Groups of threads that share a slab would mostly wait for each other.
constexpr int64_t SLAB_TERMS = 64, SLABS_FROM = 65536;

__global__ __launch_bounds__(LOCAL_BLOCK) void sum_slabs(const scalar_t* __restrict__ x,
                                                         scalar_t* __restrict__ y, int64_t outer,
                                                         int reduce, int inner, int most) {
    __shared__ Image<LOCAL_BLOCK, LOCAL_MOST / VEC> image;
    const BlockRows own(outer, most);
    const int length = reduce * inner;
    const scalar_t* here = image.fetch(x, own.first * length, own.count * length, outer * length);
    for (int i = threadIdx.x; i < own.count * inner; i += LOCAL_BLOCK) {
        const scalar_t* in = here + i / inner * length + i % inner;
        float even = 0.0f, odd = 0.0f;
#pragma unroll 4
        for (int row = 0; row + 1 < reduce; row += 2) {
            even += float(in[row * inner]);
            odd += float(in[(row + 1) * inner]);
        }
        if (reduce % 2 != 0) even += float(in[(reduce - 1) * inner]);
        y[own.first * inner + i] = scalar_t(even + odd);
    }
}

void launch_slabs(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                  cudaStream_t stream) {
    const int64_t room = LOCAL_BLOCK * LOCAL_MOST / (reduce * inner), most = min(room, outer / FILL + 1);
    sum_slabs<<<(unsigned)((outer + most - 1) / most), LOCAL_BLOCK, 0, stream>>>(
        x, y, outer, (int)reduce, (int)inner, (int)most);
}

// What several blocks summed, of all sums side by side.
__global__ __launch_bounds__(BLOCK) void sum_partials(const float* partial,
                                                      scalar_t* __restrict__ y, int64_t inner,
                                                      unsigned splits, int lanes, int64_t sums) {
    wait_for_previous();
    const int64_t i = group_of_lanes(lanes);
    const float* from = partial + i / inner * splits * inner + i % inner;
    float total = 0.0f;
    for (int64_t s = threadIdx.x % lanes; i < sums && s < splits; s += lanes) total += from[s * inner];
    total = lane_reduce<Sum>(total, lanes);
    if (threadIdx.x % lanes == 0 && i < sums) y[i] = scalar_t(total);
}

template <int V>
void launch_columns(const scalar_t* x, scalar_t* y, float* partial, int64_t outer, int64_t reduce,
                    int64_t inner, unsigned splits, cudaStream_t stream) {
    // A thread has half as many rows as it can load at once, or more, if that leaves blocks enough.
    const auto tiles_of = [&](int wide) { return (inner / V + wide - 1) / wide; };
    int wide = ACROSS<V>;
    while (wide < BLOCK && BLOCK / wide * (UNROLL / 2) > reduce / splits &&
           outer * tiles_of(2 * wide) * splits >= FILL / 4)
        wide *= 2;
    const int64_t tiles = tiles_of(wide);
    const dim3 block(wide, BLOCK / wide);
    sum_columns<V><<<(unsigned)(outer * tiles * splits), block, 0, stream>>>(x, y, partial, reduce,
                                                                             inner, (unsigned)tiles,
                                                                             (unsigned)splits);
}

constexpr int64_t SHORT = 8;  // terms of a thread's sum, if there are not threads enough for more

// Whether a sum is a thread's: neighbours then read neighbours, or few terms at least.
bool is_short(int64_t outer, int64_t reduce, int64_t inner) {
    return reduce <= SHORT || (inner >= 32 && outer * inner >= (int64_t)FILL * BLOCK);
}

// How many blocks share a sum.
int64_t splits_of(int64_t outer, int64_t reduce, int64_t inner, bool whole) {
    constexpr int64_t LEAST = 4;  // a second kernel takes longer than what fewer would spare
    if (is_short(outer, reduce, inner)) return 1;
    const int64_t across = whole ? 8 * VEC : 32;
    const int64_t splits =
        inner == 1   ? splits_for(outer, whole ? Whole::most(reduce) : Ragged::most(reduce), FILL, 4 * BLOCK)
        : inner < 32 ? splits_for(outer, reduce * inner, FILL, 16 * BLOCK)
                     : splits_for(outer * ((inner + across - 1) / across), reduce, FILL, 64);
    return splits < LEAST ? 1 : splits;
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    const int64_t sums = outer * inner;
    if (sums == 0) return 0;
    if (reduce == 1) return copy(x, y, sums, stream);
    const bool whole = are_whole((uintptr_t)x | (inner == 1 ? 0 : (uintptr_t)y),
                                 inner == 1 ? reduce : inner);
    const int64_t splits = splits_of(outer, reduce, inner, whole);
    Scratch<float> scratch(splits > 1 ? sums * splits : 0, stream);
    if (scratch.error) return (int)scratch.error;
    float* partial = scratch.data;
    if (is_short(outer, reduce, inner))
        (whole && inner > 1 ? launch_short<VEC> : launch_short<1>)(x, y, outer, reduce, inner, stream);
    else if (inner == 1 && is_single(outer, reduce, SINGLE_MOST, FEW, whole))
        launch_rows<Single>(x, y, partial, outer, reduce, splits, stream);
    else if (inner == 1 && whole)
        launch_rows<Whole>(x, y, partial, outer, reduce, splits, stream);
    else if (inner == 1)
        launch_rows<Ragged>(x, y, partial, outer, reduce, splits, stream);
    else if (inner < 32 && reduce <= SLAB_TERMS && sums >= SLABS_FROM)
        launch_slabs(x, y, outer, reduce, inner, stream);
    else if (inner < 32)
        (are_whole((uintptr_t)x, reduce * inner) ? launch_few<VEC> : launch_few<1>)(
            x, y, partial, outer, reduce, inner, splits, stream);
    else
        (whole ? launch_columns<VEC> : launch_columns<1>)(x, y, partial, outer, reduce, inner, splits,
                                                          stream);
    if (partial) {
        const int lanes = inner >= 32 ? 1 : lanes_for(splits, 2);
        const int64_t blocks = (sums * lanes + BLOCK - 1) / BLOCK;
        launch_next(sum_partials, blocks, BLOCK, stream, partial, y, inner, splits, lanes, sums);
    }
    return (int)cudaGetLastError();
}
