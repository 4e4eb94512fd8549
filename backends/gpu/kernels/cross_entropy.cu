// Cross-entropy of each row of logits, the row read once: a thread keeps the maximum of what it has
// seen and the sum of exponentials relative to it, and who shares the row joins them. Short rows are a
// thread's each, narrow ones a few lanes', a few very wide ones several blocks'.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 256 512 1024
#define UNROLL 2  // knob: 2 4
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

// x: the maximum, y: the sum of powers relative to it
__device__ __forceinline__ float2 joined(float2 a, float2 b) {
    const float top = fmaxf(a.x, b.x);
    return make_float2(top, a.y * exponential(a.x - top) + b.y * exponential(b.x - top));
}

__device__ __forceinline__ float2 joined_by_lanes(float2 seen, int lanes) {
    const float top = lane_reduce<Max>(seen.x, lanes);
    return make_float2(top, lane_reduce<Sum>(seen.y * exponential(seen.x - top), lanes));
}

constexpr int NARROW = 4;  // packs at once of a row that lanes share

// What a member of those which share a part of a row has seen of it, SHARE packs at once.
template <int SHARE, class R>
__device__ __forceinline__ float2 look(const R& row, const Part& part, int me, int members) {
    float2 seen = make_float2(Max::start(), 0.0f);
    each_pack<SHARE>(row, part, me, members, lowest(), [&](const auto& values, int64_t) {
        float top = seen.x, total = 0.0f;
        for (const auto& pack : values)
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) top = fmaxf(top, float(pack.at[j]));
        for (const auto& pack : values)
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) total += exponential(float(pack.at[j]) - top);
        seen = make_float2(top, seen.y * exponential(seen.x - top) + total);
    });
    return seen;
}

struct Tensors {
    const scalar_t* logits;
    const int64_t* target;
    scalar_t* loss;
    int64_t rows, classes;

    __device__ __forceinline__ float chosen(int64_t row) const {
        return float(logits[row * classes + target[row]]);
    }
    __device__ __forceinline__ void write(int64_t row, float2 seen, float chosen) const {
        loss[row] = scalar_t(logf(seen.y) - (chosen - seen.x));
    }
};

template <class R>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void cross_entropy_narrow(const Tensors all, int lanes) {
    const int64_t row = group_of_lanes(lanes);
    const R in(all.logits, row < all.rows ? row : all.rows - 1, all.classes);
    const bool writes = threadIdx.x % lanes == 0 && row < all.rows;
    const float chosen = writes ? all.chosen(row) : 0.0f;  // asked for first, being two loads in turn
    const float2 seen = joined_by_lanes(look<NARROW>(in, Part(in.packs, 1, 0), threadIdx.x % lanes, lanes), lanes);
    if (writes) all.write(row, seen, chosen);
}

// A word of shared memory, and the largest of several.
constexpr int WORD = 4 / sizeof(scalar_t);
using Word = Some<WORD>;
#if !PORTKERN_HIP && (PORTKERN_BFLOAT16 || PORTKERN_FLOAT16)  // two halves in an instruction
#if PORTKERN_BFLOAT16
using Two = __nv_bfloat162;
#else
using Two = __half2;
#endif
struct Largest {
    Two top;

    __device__ __forceinline__ explicit Largest(scalar_t edge) : top(edge, edge) {}
    __device__ __forceinline__ void take(const Word& word) {
        top = __hmax2(top, Two(word.at[0], word.at[1]));
    }
    __device__ __forceinline__ float found() const { return fmaxf(float(top.x), float(top.y)); }
};
#else
struct Largest {
    float top;

    __device__ __forceinline__ explicit Largest(scalar_t edge) : top(float(edge)) {}
    __device__ __forceinline__ void take(const Word& word) {
#pragma unroll
        for (int j = 0; j < WORD; ++j) top = fmaxf(top, float(word.at[j]));
    }
    __device__ __forceinline__ float found() const { return top; }
};
#endif

// Narrow ragged rows, of at most LOCAL_MOST elements for each of a warp's lanes. These take words of a row:
// what they do takes longer than memory does. What a row has of its neighbours' words, one element at either
// end, is the first lane's and the last one's, which are two.
__global__ PORTABLE_LAUNCH_BOUNDS(LOCAL_BLOCK, 2 + 2 * WORD)
void cross_entropy_local(const Tensors all, int lanes) {
    __shared__ Image<LOCAL_BLOCK, LOCAL_MOST / VEC> image;
    const int cols = (int)all.classes, lane = threadIdx.x % lanes, me = threadIdx.x / lanes;
    const BlockRows own(all.rows, blockDim.x / lanes);
    const bool there = me < own.count;
    const int64_t row = own.first + me;
    const int64_t target = there && lane == 0 ? all.target[row] : 0;
    const scalar_t* here = image.fetch(all.logits, own.first * cols, own.count * cols,
                                       all.rows * cols, blockDim.x);
    const scalar_t* words = reinterpret_cast<const scalar_t*>(image.packs);
    const int begin = (int)(here - words) + me * cols, end = there ? begin + cols : begin;
    const int first = (begin + WORD - 1) / WORD + lane, last = end / WORD;
    scalar_t edge = lowest();
    if (WORD > 1 && there && lane == 0 && begin % WORD) edge = words[begin];
    if (WORD > 1 && there && lane == lanes - 1 && end % WORD) edge = words[end - 1];
    Largest largest(edge);
#pragma unroll 4
    for (int i = first; i < last; i += lanes) largest.take(reinterpret_cast<const Word*>(words)[i]);
    float top = fmaxf(Max::start(), largest.found());
    top = lane_reduce<Max>(top, lanes);
    float total = exponential(float(edge) - top);
#pragma unroll 4
    for (int i = first; i < last; i += lanes) {
        const Word word = reinterpret_cast<const Word*>(words)[i];
#pragma unroll
        for (int j = 0; j < WORD; ++j) total += exponential(float(word.at[j]) - top);
    }
    total = lane_reduce<Sum>(total, lanes);
    if (there && lane == 0) all.write(row, make_float2(top, total), float(here[me * cols + target]));
}

// Rows of at most SHORT_ROW elements.
__global__ __launch_bounds__(SHORT_BLOCK) void cross_entropy_short(const Tensors all) {
    each_short_row(all.logits, all.rows, all.classes, [&](int64_t row, const Single& in) {
        all.write(row, look<NARROW>(in, Part(in.packs, 1, 0), 0, 1), all.chosen(row));
    });
}

// `parts`: where several blocks share a row, else null.
template <class R>
__global__ __launch_bounds__(threads_most<R>(BLOCK)) void cross_entropy_wide(const Tensors all,
                                                                             float2* parts,
                                                                             unsigned splits) {
    let_next_begin();
    __shared__ float2 warps[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    const R in(all.logits, row, all.classes);
    const Part part(in.packs, splits, blockIdx.x % splits);
    const float chosen = threadIdx.x == 0 && !parts ? all.chosen(row) : 0.0f;
    float2 seen = look<UNROLL>(in, part, threadIdx.x, blockDim.x);
    seen = joined_by_lanes(seen, WARP_SIZE);
    if (threadIdx.x % WARP_SIZE == 0) warps[threadIdx.x / WARP_SIZE] = seen;
    __syncthreads();
    if (threadIdx.x >= WARP_SIZE) return;
    // A warp's lanes are as many as there are warps, or more.
    seen = make_float2(Max::start(), 0.0f);
    if (threadIdx.x < blockDim.x / WARP_SIZE) seen = warps[threadIdx.x];
    seen = joined_by_lanes(seen, WARP_SIZE);
    if (threadIdx.x > 0) return;
    if (parts) parts[blockIdx.x] = seen;
    else all.write(row, seen, chosen);
}

__global__ __launch_bounds__(BLOCK) void cross_entropy_of_parts(const Tensors all,
                                                                const float2* parts,
                                                                unsigned splits) {
    wait_for_previous();
    const int lanes = WARP_SIZE_MIN, lane = threadIdx.x % lanes;
    const int64_t row = group_of_lanes(lanes);
    float2 seen = make_float2(Max::start(), 0.0f);
    for (int64_t s = lane; row < all.rows && s < splits; s += lanes)
        seen = joined(seen, parts[row * splits + s]);
    seen = joined_by_lanes(seen, lanes);
    if (lane == 0 && row < all.rows) all.write(row, seen, all.chosen(row));
}

template <class R>
int launch(const Tensors& all, cudaStream_t stream) {
    const int64_t packs = R::most(all.classes);
    if (!R::WHOLE && are_short(all.rows, all.classes)) {
        cross_entropy_short<<<short_blocks(all.rows), SHORT_BLOCK, 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    if (!R::WHOLE && all.classes <= LOCAL_MOST * WARP_SIZE_MIN) {
        const int found = local_lanes(all.classes), lanes = found < WORD ? WORD : found;
        const Blocks blocks = blocks_for(all.rows * lanes, LOCAL_BLOCK);
        cross_entropy_local<<<blocks.count, blocks.threads, 0, stream>>>(all, lanes);
        return (int)cudaGetLastError();
    }
    if (packs <= (int64_t)WARP_SIZE_MIN * NARROW * 2) {
        const int lanes = lanes_for(packs, NARROW);
        const Blocks blocks = blocks_for(all.rows * lanes, BLOCK);
        cross_entropy_narrow<R><<<blocks.count, blocks.threads, 0, stream>>>(all, lanes);
        return (int)cudaGetLastError();
    }
    const int64_t splits = splits_for(all.rows, packs, FILL, part_least<R>(BLOCK));
    Scratch<float2> parts(splits > 1 ? all.rows * splits : 0, stream);
    if (parts.error) return (int)parts.error;
    const unsigned threads = threads_for(packs / splits, UNROLL, threads_most<R>(BLOCK));
    cross_entropy_wide<R><<<(unsigned)(all.rows * splits), threads, 0, stream>>>(all, parts.data, splits);
    if (parts.data) {
        const int64_t blocks = (all.rows * WARP_SIZE_MIN + BLOCK - 1) / BLOCK;
        launch_next(cross_entropy_of_parts, blocks, BLOCK, stream, all, parts.data, splits);
    }
    return (int)cudaGetLastError();
}

extern "C" int cross_entropy(const scalar_t* logits, const int64_t* target, scalar_t* loss,
                             int64_t rows, int64_t classes, cudaStream_t stream) {
    if (rows == 0) return 0;
    const Tensors all = {logits, target, loss, rows, classes};
    const bool whole = are_whole((uintptr_t)logits, classes);
    if (is_single(rows, classes, SINGLE_MOST, FEW, whole))
        return launch<Single>(all, stream);
    return whole ? launch<Whole>(all, stream) : launch<Ragged>(all, stream);
}
