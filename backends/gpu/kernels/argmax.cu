// Index of each row's largest element. A thread finds its first pack with its largest element, and
// who shares the row the first pack of all, by keys of which no two are equal; only there is looked
// for the element. Short rows are a thread's each, narrow ones a few lanes', a few very wide ones several
// blocks'.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 4  // knob: 1 2 4 8
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

constexpr int LARGE = 1024;  // threads of the largest block
constexpr int ENOUGH_ROWS = 128;  // where such blocks fill a GPU, and parts would take a second kernel

typedef unsigned long long Key;  // the value, then the pack: of equal values the first is larger

// Rises with the value, a NaN above all.
__device__ __forceinline__ unsigned ordered(float value) {
    const unsigned bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
    return value != value ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Of what a member of those that share a part of a row has; below all others where that is nothing.
template <class R>
__device__ __forceinline__ Key highest(const R& row, const Part& part, int me, int members) {
    Key key = 0;
    each_pack<UNROLL>(row, part, me, members, lowest(), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
            scalar_t most = pack.at[0];
#pragma unroll
            for (int j = 1; j < R::VEC; ++j) most = max_nan(most, pack.at[j]);
            key = max(key, (Key)ordered(float(most)) << 32 | ~(unsigned)i);
            i += members;
        }
    });
    return key;
}

template <class R>
__device__ __forceinline__ int64_t element(const R& row, Key key) {
    const unsigned place = ~(unsigned)key;
    const typename R::Pack values = row.load(place);
    int first = 0;
#pragma unroll
    for (int j = R::VEC - 1; j >= 0; --j)
        if (row.has(place, j) && ordered(float(values.at[j])) == key >> 32) first = j;
    return row.column(place, first);
}

__device__ __forceinline__ Key lane_highest(Key key, int lanes) {
    for (int d = lanes / 2; d > 0; d /= 2) key = max(key, warp_shuffle_xor(key, d));
    return key;
}

// Bounded only by its threads, it is given too few registers.
template <class R>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void argmax_narrow(const scalar_t* __restrict__ x,
                                                              int64_t* __restrict__ index,
                                                              int64_t rows, int64_t cols,
                                                              int lanes) {
    const int64_t row = group_of_lanes(lanes);
    const R in(x, row < rows ? row : rows - 1, cols);
    const Key key = lane_highest(highest(in, Part(in.packs, 1, 0), threadIdx.x % lanes, lanes), lanes);
    if (threadIdx.x % lanes == 0 && row < rows) index[row] = element(in, key);
}

// Of local elements from `first` on, each `step`th: the first of the largest, a NaN being larger than all.
__device__ __forceinline__ Key highest_of(const scalar_t* row, int first, int length, int step) {
    float most = first < length ? float(row[first]) : float(lowest());
    int place = first;
#pragma unroll 4
    for (int i = first + step; i < length; i += step) {
        const float value = float(row[i]);
        if (!(value <= most) && most == most) most = value, place = i;
    }
    return (Key)ordered(most) << 32 | ~(unsigned)place;
}

// Rows of at most SHORT_ROW elements.
__global__ __launch_bounds__(SHORT_BLOCK) void argmax_short(const scalar_t* __restrict__ x,
                                                      int64_t* __restrict__ index, int64_t rows,
                                                      int64_t cols) {
    each_short_row(x, rows, cols, [&](int64_t row, const Single& in) {
        index[row] = ~(unsigned)highest_of(in.start, 0, (int)cols, 1);
    });
}

// Narrow ragged rows, of at most LOCAL_MOST elements for each of a warp's lanes.
__global__ __launch_bounds__(LOCAL_BLOCK) void argmax_local(const scalar_t* __restrict__ x,
                                                            int64_t* __restrict__ index, int64_t rows,
                                                            int cols, int lanes) {
    __shared__ Image<LOCAL_BLOCK, LOCAL_MOST / VEC> image;
    const BlockRows own(rows, blockDim.x / lanes);
    const scalar_t* here = image.fetch(x, own.first * cols, own.count * cols, rows * cols, blockDim.x);
    const int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const scalar_t* mine = here + min(row, own.count - 1) * cols;
    const Key key = lane_highest(highest_of(mine, lane, cols, lanes), lanes);
    if (lane == 0 && row < own.count) index[own.first + row] = ~(unsigned)key;
}

template <class R>
__global__ __launch_bounds__(LARGE) void argmax_wide(
    const scalar_t* __restrict__ x, int64_t* __restrict__ index, Key* partial, int64_t cols,
    unsigned splits) {
    let_next_begin();
    __shared__ Key warps[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    const R in(x, row, cols);
    const Part part(in.packs, splits, blockIdx.x % splits);
    Key key = highest(in, part, threadIdx.x, blockDim.x);
    key = lane_highest(key, WARP_SIZE);
    if (threadIdx.x % WARP_SIZE == 0) warps[threadIdx.x / WARP_SIZE] = key;
    __syncthreads();
    if (threadIdx.x >= WARP_SIZE) return;
    key = lane_highest(threadIdx.x < blockDim.x / WARP_SIZE ? warps[threadIdx.x] : 0, WARP_SIZE);
    if (threadIdx.x > 0) return;
    if (partial) partial[blockIdx.x] = key;
    else index[row] = element(in, key);
}

// Of what several blocks found in a row.
template <class R>
__global__ __launch_bounds__(BLOCK) void argmax_of_parts(const scalar_t* __restrict__ x,
                                                         const Key* partial,
                                                         int64_t* __restrict__ index, int64_t rows,
                                                         int64_t cols, unsigned splits) {
    wait_for_previous();
    const int lanes = WARP_SIZE_MIN, lane = threadIdx.x % lanes;
    const int64_t row = group_of_lanes(lanes);
    Key key = 0;
    for (int64_t s = lane; row < rows && s < splits; s += lanes) key = max(key, partial[row * splits + s]);
    key = lane_highest(key, lanes);
    if (lane == 0 && row < rows) index[row] = element(R(x, row, cols), key);
}

// Of a single element, which need not be read.
__global__ __launch_bounds__(BLOCK) void argmax_single(int64_t* __restrict__ index, int64_t rows) {
    const int64_t row = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (row < rows) index[row] = 0;
}

template <class R>
int launch(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols, cudaStream_t stream) {
    const int64_t packs = R::most(cols);
    if (!R::WHOLE && are_short(rows, cols)) {
        argmax_short<<<short_blocks(rows), SHORT_BLOCK, 0, stream>>>(x, index, rows, cols);
        return (int)cudaGetLastError();
    }
    if (!R::WHOLE && cols <= LOCAL_MOST * WARP_SIZE_MIN) {
        const int lanes = local_lanes(cols);
        const Blocks blocks = blocks_for(rows * lanes, LOCAL_BLOCK);
        argmax_local<<<blocks.count, blocks.threads, 0, stream>>>(x, index, rows, (int)cols, lanes);
        return (int)cudaGetLastError();
    }
    if (packs <= (int64_t)WARP_SIZE_MIN * UNROLL * 2) {
        const int lanes = lanes_for(packs, UNROLL);
        const Blocks blocks = blocks_for(rows * lanes, BLOCK);
        argmax_narrow<R><<<blocks.count, blocks.threads, 0, stream>>>(x, index, rows, cols, lanes);
        return (int)cudaGetLastError();
    }
    const int64_t splits = rows >= ENOUGH_ROWS ? 1 : splits_for(rows, packs, FILL, part_least<R>(BLOCK));
    Scratch<Key> partial(splits > 1 ? rows * splits : 0, stream);
    if (partial.error) return (int)partial.error;
    const unsigned threads = threads_for(packs / splits, UNROLL, splits > 1 || rows >= FILL ? BLOCK : LARGE);
    argmax_wide<R><<<(unsigned)(rows * splits), threads, 0, stream>>>(x, index, partial.data, cols,
                                                                          splits);
    if (partial.data) {
        const int64_t blocks = (rows * WARP_SIZE_MIN + BLOCK - 1) / BLOCK;
        launch_next(argmax_of_parts<R>, blocks, BLOCK, stream, x, partial.data, index, rows, cols, splits);
    }
    return (int)cudaGetLastError();
}

extern "C" int argmax(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
    if (rows == 0) return 0;
    if (cols >= (int64_t)1 << 31) return (int)cudaErrorInvalidValue;  // a key's place has 32 bits
    if (cols == 1) {
        argmax_single<<<(unsigned)((rows + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(index, rows);
        return (int)cudaGetLastError();
    }
    const bool whole = are_whole((uintptr_t)x, cols);
    if (is_single(rows, cols, SINGLE_MOST, FEW, whole))
        return launch<Single>(x, index, rows, cols, stream);
    return whole ? launch<Whole>(x, index, rows, cols, stream) : launch<Ragged>(x, index, rows, cols, stream);
}
