// Rows of any length and alignment, 16 bytes at a time, and who shares one: a few lanes where rows
// are narrow, a block, or several blocks where there are too few rows to fill a GPU.
#pragma once
#include <portkern/next_kernel.h>
#include <portkern/packs.h>

// -inf
__device__ __forceinline__ scalar_t lowest() { return scalar_t(__int_as_float(0xff800000)); }

__device__ __forceinline__ uint64_t word(unsigned low, unsigned high) { return (uint64_t)high << 32 | low; }

// 16 bytes of two packs, from `bytes` on, fewer than 16: as a load of them would give if it could begin there.
__device__ __forceinline__ Pack joined(const Bits& low, const Bits& high, int bytes) {
    const bool far = bytes >= 8;
    const uint64_t a = far ? word(low.z, low.w) : word(low.x, low.y), b = far ? word(high.x, high.y) : word(low.z, low.w),
                   c = far ? word(high.z, high.w) : word(high.x, high.y);
    const int bits = bytes % 8 * 8;
    const uint64_t result[2] = {a >> bits | b << 1 << (63 - bits), b >> bits | c << 1 << (63 - bits)};
    Pack pack;
    memcpy(&pack, result, 16);
    return pack;
}

// A row of a tensor in packs of memory, of V elements each. ALONE: it is packs of its own. Else its first
// and its last pack are its edges, which it may share with its neighbours: `has` tells which elements
// are whose.
template <int V, bool ALONE>
struct Row {
    static constexpr int VEC = V;
    static constexpr bool WHOLE = ALONE, LOCAL = false;
    using Pack = Some<V>;

    const scalar_t* tensor;
    const scalar_t* start;  // of pack 0, at the row's first element or shortly before it
    int64_t length, packs;
    int skip;  // elements of pack 0 that are not the row's

    // The most packs that a row of this length can have.
    __host__ __device__ static int64_t most(int64_t length) {
        return WHOLE ? length / V : (length + 2 * V - 2) / V;
    }

    __device__ __forceinline__ Row(const scalar_t* tensor, int64_t row, int64_t length)
        : tensor(tensor), length(length) {
        const scalar_t* own = tensor + row * length;
        skip = WHOLE ? 0 : (int)skipped(own);
        start = own - skip;
        packs = WHOLE ? length / V : (skip + length + V - 1) / V;
    }
    __device__ __forceinline__ bool edge(int64_t i) const { return !WHOLE && (i == 0 || i == packs - 1); }
    // Of element j of pack i: its place in the row, if it has one there.
    __device__ __forceinline__ int64_t column(int64_t i, int j) const { return i * V + j - skip; }
    __device__ __forceinline__ bool has(int64_t i, int j) const {
        if (V == 1) return i < packs;
        return !edge(i) || (uint64_t)column(i, j) < (uint64_t)length;
    }
    // With `other` for what is not the row's.
    __device__ __forceinline__ Pack load(int64_t i, scalar_t other = scalar_t(0.0f)) const {
        const scalar_t* from = start + i * V;
        if (!edge(i)) return *reinterpret_cast<const Pack*>(from);
        Pack pack;
#pragma unroll
        for (int j = 0; j < V; ++j) pack.at[j] = has(i, j) ? from[j] : other;
        return pack;
    }
    // Of `other`, which is as long as the row, the elements beside pack i; zeros beside what is not the row's.
    __device__ __forceinline__ Pack beside(const scalar_t* other, int64_t i) const {
        if (WHOLE) return reinterpret_cast<const Pack*>(other)[i];
        // Of four elements these are no fewer instructions than a load of each.
        if constexpr (V == 8)
            if (!edge(i) && (i + 1) * V <= length && (uintptr_t)other % 16 == 0) {
                const Bits* packs = reinterpret_cast<const Bits*>(other);
                return joined(packs[i - (skip > 0)], packs[i], skip > 0 ? (V - skip) * (int)sizeof(scalar_t) : 0);
            }
        Pack pack;
#pragma unroll
        for (int j = 0; j < V; ++j) pack.at[j] = has(i, j) ? other[column(i, j)] : scalar_t(0.0f);
        return pack;
    }
    // Into the same row of `to`, whose packs lie as the tensor's do if `alike`.
    __device__ __forceinline__ void store(scalar_t* to, int64_t i, const Pack& pack, bool alike) const {
        scalar_t* at = to + (start - tensor) + i * V;
        if (V > 1 && (WHOLE || (alike && !edge(i)))) {
            *reinterpret_cast<Pack*>(at) = pack;
            return;
        }
#pragma unroll
        for (int j = 0; j < V; ++j)
            if (has(i, j)) at[j] = pack.at[j];
    }
};
using Whole = Row<VEC, true>;
using Ragged = Row<VEC, false>;
// An element at a time, for tensors of so few that a cold kernel takes as long as its instructions take
// to arrive: of these it needs a half to a quarter.
using Single = Row<1, true>;
constexpr int SINGLE_SHARE = 4, SINGLE_MOST = 4096;  // of a row: elements that a thread keeps, and all
constexpr int RAGGED_MORE = 4;  // times as many, where packs would have edges

// A row in shared memory, which a block has for itself. There an element at a time costs little, and a
// row that begins anywhere has neither edges nor packs that are partly its own.
struct Local : Single {
    static constexpr bool LOCAL = true;
    using Single::Single;
    // Over a pack that the row has: there is no other place.
    __device__ __forceinline__ void store(scalar_t*, int i, const Pack& pack, bool) const {
        const_cast<scalar_t*>(start)[i] = pack.at[0];
    }
};

// Of so many packs of a row what a thread has: from `first` on each `step`th.
template <class R>
struct Mine {
    int first, step, packs, count;

    __device__ __forceinline__ Mine(int first, int step, int packs)
        : first(first),
          step(step),
          packs(packs),
          count(R::LOCAL ? (unsigned)(packs - first + step - 1) / step : 0) {}
    __device__ __forceinline__ int at(int k) const { return first + k * step; }
    __device__ __forceinline__ bool has(int k) const { return R::LOCAL ? k < count : at(k) < packs; }
    // Whether nobody has a k-th. Asked of every fourth of a local row's: a branch costs less than four
    // elements that are none.
    __device__ __forceinline__ bool ends(int k) const { return R::LOCAL && k % 4 == 0 && k * step >= packs; }
    // Gives `take` each k of those that it has: four of a local row's at once where all have them, as a
    // condition for each would cost more than what is done.
    template <int SHARE, class Take>
    __device__ __forceinline__ void each(Take take) const {
#pragma unroll
        for (int k = 0; k < SHARE; k += 4) {
            if (ends(k)) break;
            const bool full = R::LOCAL && (k + 4) * step <= packs;
#pragma unroll
            for (int u = k; full && u < k + 4 && u < SHARE; ++u) take(u);
#pragma unroll
            for (int u = k; !full && u < k + 4 && u < SHARE; ++u)
                if (has(u)) take(u);
        }
    }
};

// As what a kernel of narrow rows takes them: of ragged ones the edges, an element at a time, would be
// half of its work with memory.
template <class R>
struct NearOf {
    using Rows = R;
};
template <>
struct NearOf<Ragged> {
    using Rows = Local;
};
template <class R>
using Near = typename NearOf<R>::Rows;

// Rows that may begin anywhere, of so few elements and so many that each is one thread's, which takes them
// from shared memory, where its block brings its rows in side by side.
constexpr int SHORT_ROW = 16, SHORT_BLOCK = 256, MANY_ROWS = 65536;
inline bool are_short(int64_t rows, int64_t length) { return length <= SHORT_ROW && rows >= MANY_ROWS; }
inline unsigned short_blocks(int64_t rows) { return (unsigned)((rows + SHORT_BLOCK - 1) / SHORT_BLOCK); }

// Rows of a block that follow one another, at most SHARE packs for each of its THREADS: what lies in
// memory from the first one's first pack to the last one's last, which come and go whole.
template <int THREADS, int SHARE>
struct Image {
    Bits packs[THREADS * SHARE + 1];

    // The first of `count` elements from `first` on, of a tensor of `total`. The block may have fewer threads
    // than there is room for.
    __device__ __forceinline__ scalar_t* fetch(const scalar_t* x, int64_t first, int count, int64_t total,
                                               int threads = THREADS) {
        const int skip = (int)skipped(x + first);
        const int used = (skip + count + VEC - 1) / VEC;
        const scalar_t* from = x + first - skip;
        scalar_t* own = reinterpret_cast<scalar_t*>(packs) + skip;
        if (from >= x && from + used * VEC <= x + total) {
            Bits held[SHARE + 1];
#pragma unroll
            for (int k = 0; k <= SHARE; ++k) {
                const int i = k * threads + threadIdx.x;
                if (i < used) held[k] = reinterpret_cast<const Bits*>(from)[i];
            }
#pragma unroll
            for (int k = 0; k <= SHARE; ++k) {
                const int i = k * threads + threadIdx.x;
                if (i < used) packs[i] = held[k];
            }
        } else {
            // The tensor has but a part of the first or the last pack, which alone are taken an element at
            // a time: all others so would be the longest work of any block.
            const int begin = from < x, end = from + used * VEC > x + total ? used - 1 : used;
#pragma unroll 4
            for (int i = begin + threadIdx.x; i < end; i += threads)
                packs[i] = reinterpret_cast<const Bits*>(from)[i];
            const int ahead = (int)threadIdx.x - skip, behind = (used - 1) * VEC + ahead;
            if (threadIdx.x < VEC && begin > 0 && ahead >= 0 && ahead < count) own[ahead] = x[first + ahead];
            if (threadIdx.x < VEC && end < used && behind >= 0 && behind < count)
                own[behind] = x[first + behind];
        }
        __syncthreads();
        return own;
    }
    // To the same place of y.
    __device__ __forceinline__ void store(scalar_t* y, const scalar_t* own, int64_t first, int count,
                                          int threads = THREADS) {
        __syncthreads();
        const int skip = (int)(own - reinterpret_cast<const scalar_t*>(packs));
        const int to = (int)skipped(y + first);
        if (to != skip) {
#pragma unroll 1
            for (int i = threadIdx.x; i < count; i += threads) y[first + i] = own[i];
            return;
        }
        const int ahead = (VEC - skip) % VEC, whole = max(count - ahead, 0) / VEC, odd = skip > 0;
        Bits* at = reinterpret_cast<Bits*>(y + first + ahead);
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            const int i = k * threads + threadIdx.x;
            if (i < whole) at[i] = packs[i + odd];
        }
        const int i = threadIdx.x, behind = ahead + whole * VEC + i;
        if (i < min(ahead, count)) y[first + i] = own[i];
        if (i < VEC && behind < count) y[first + behind] = own[behind];
    }
};

// The packs of a row that a thread keeps at most, of `items` elements.
template <class R>
constexpr int share_most(int items) {
    return R::LOCAL ? items : R::VEC > 1 ? items / R::VEC : SINGLE_SHARE;
}

// The threads of the largest block, which is `most` where a thread has packs.
template <class R>
constexpr int threads_most(int most) {
    return R::VEC > 1 ? most : 1024;
}

// `few`: elements of the tensor, about as many as a GPU has threads; more of them where rows are not `whole`.
inline bool is_single(int64_t rows, int64_t length, int64_t most, int64_t few, bool whole = true) {
    return length <= most && rows * length <= (whole ? few : RAGGED_MORE * few);
}

inline bool lie_alike(const void* a, const void* b) { return ((uintptr_t)a ^ (uintptr_t)b) % 16 == 0; }
inline bool are_whole(uintptr_t pointers, int64_t length) { return pointers % 16 == 0 && length % VEC == 0; }

// ---- Reductions ----------------------------------------------------------------------------------

struct Max {
    __device__ __forceinline__ static float start() { return -3.402823466e38f; }
    __device__ __forceinline__ static float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    __device__ __forceinline__ static float start() { return 0.0f; }
    __device__ __forceinline__ static float of(float a, float b) { return a + b; }
};

// Of a difference, which is small where the result is not, so that the product is near enough.
__device__ __forceinline__ float exponential(float difference) {
#if PORTKERN_AMD
    return exp2f(difference * 1.44269504088896341f);
#else  // exp2f is this instruction and three for results below 2^-126, which add nothing here
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(difference * 1.44269504088896341f));
    return result;
#endif
}

// Over groups of `lanes` neighbours, a power of two; all lanes of a warp take part.
template <class Combine>
__device__ __forceinline__ float lane_reduce(float value, int lanes) {
#pragma unroll
    for (int d = lanes / 2; d > 0; d /= 2) value = Combine::of(value, warp_shuffle_xor(value, d));
    return value;
}

// Over the block, which has at most 1024 threads. `partial` has WARPS_MOST elements and is the call's
// own: one barrier is enough then.
constexpr int WARPS_MOST = 1024 / WARP_SIZE_MIN;
template <class Combine>
__device__ __forceinline__ float block_reduce(float value, float* partial) {
    value = lane_reduce<Combine>(value, WARP_SIZE);
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < blockDim.x / WARP_SIZE; ++w) value = Combine::of(value, partial[w]);
    return value;
}

// ---- Shapes --------------------------------------------------------------------------------------

constexpr int BLOCKS_WANTED = 256;  // two of a multiprocessor
constexpr int64_t SPREAD = 1 << 18;  // threads of a GPU

// Lanes for a row of so many packs where each takes `share`: a power of two.
inline int lanes_for(int64_t packs, int share) {
    int lanes = 1;
    while (lanes < WARP_SIZE_MIN && (int64_t)lanes * share < packs) lanes *= 2;
    return lanes;
}

// Threads of a block, at most `most`, for so many packs of which each takes `share` at once: short rows
// would leave most of a large block idle.
inline unsigned threads_for(int64_t packs, int share, unsigned most) {
    unsigned threads = WARP_SIZE_MAX;
    while (threads < most && threads * share < packs) threads *= 2;
    return threads;
}

// Threads of whole warps, so many or more.
inline unsigned whole_warps(int64_t threads) {
    return (unsigned)((threads + WARP_SIZE_MAX - 1) / WARP_SIZE_MAX) * WARP_SIZE_MAX;
}

// A number of instantiation, given to a call as an argument.
template <int N>
struct Constant {
    static constexpr int value = N;
};

// Calls `launch` with the packs that a lane takes of a row of so many, and with the lanes of a row: as few
// packs as do, up to MOST, since what has no element costs as much. Lanes with two or more are a warp.
template <int MOST, int SHARE = 1, class Launch>
void with_lanes(int64_t packs, Launch launch) {
    if constexpr (2 * SHARE <= MOST)
        if (packs > SHARE * WARP_SIZE_MIN) return with_lanes<MOST, 2 * SHARE>(packs, launch);
    if constexpr (SHARE == 1) {
        if (packs <= 1) return launch(Constant<1>(), Constant<1>());
        if (packs <= 2) return launch(Constant<1>(), Constant<2>());
        if (packs <= 4) return launch(Constant<1>(), Constant<4>());
        if (packs <= 8) return launch(Constant<1>(), Constant<8>());
        if (packs <= 16) return launch(Constant<1>(), Constant<16>());
    }
    launch(Constant<SHARE>(), Constant<WARP_SIZE_MIN>());
}

// The same of a local row, of so many elements: a lane has up to SHORT_ROW of them, or up to MOST where the
// row is a warp's.
template <int MOST, int LANES = 2, class Launch>
void with_local_lanes(int64_t length, Launch launch) {
    constexpr int SHARE = MOST < SHORT_ROW ? MOST : SHORT_ROW;
    if constexpr (LANES < WARP_SIZE_MIN) {
        if (length > SHARE * LANES) return with_local_lanes<MOST, 2 * LANES>(length, launch);
    } else if constexpr (SHARE < MOST) {
        if (length > SHARE * LANES) return launch(Constant<MOST>(), Constant<LANES>());
    }
    launch(Constant<SHARE>(), Constant<LANES>());
}

// The lanes that share a local row where a loop takes what they have of it, up to LOCAL_MOST elements, and
// the threads of a block, whose rows then have half of what memory an AMD compute unit shares, or less.
constexpr int LOCAL_MOST = 32, LOCAL_BLOCK = 256;
inline int local_lanes(int64_t length) { return lanes_for(length, SHORT_ROW); }

// Blocks that share so many threads, and their own, `most` or fewer: where that makes few blocks, smaller
// ones are on more multiprocessors.
struct Blocks {
    unsigned count, threads;
};
inline Blocks blocks_for(int64_t threads, unsigned most) {
    while (most > WARP_SIZE_MAX && threads < (int64_t)most * BLOCKS_WANTED) most /= 2;
    return {(unsigned)((threads + most - 1) / most), most};
}

// Of as many packs as a GPU has threads each gets one, and a row a block: what a thread does alone takes
// longer than what threads tell each other.
inline bool are_spread(int64_t rows, int64_t packs, int64_t most) {
    return packs > WARP_SIZE_MIN && packs <= most && rows * packs <= SPREAD;
}

// The same with the least of 4, 8 and 16 that a short row's elements are no more than.
template <int N = 4, class Launch>
void with_most(int64_t length, Launch launch) {
    if constexpr (N < SHORT_ROW)
        if (length > N) return with_most<2 * N>(length, launch);
    launch(Constant<N>());
}

// Blocks that share a row: as many as bring `wanted` blocks in all, and `least` packs or more to each.
inline int64_t splits_for(int64_t rows, int64_t packs, int64_t wanted, int64_t least) {
    const int64_t by_blocks = (wanted + rows - 1) / rows, by_packs = packs / least;
    const int64_t splits = by_blocks < by_packs ? by_blocks : by_packs;
    return splits < 1 ? 1 : splits;
}

// Parts of a row for two kernels with blocks of `block` threads, the second of which reads the parts again: none of
// a row that a block alone is done with sooner; of more rows as many as fill a GPU; and of rows that would make few
// blocks so, many of about a pack for each second thread, up to a block for each multiprocessor.
inline int64_t parts_twice(int64_t rows, int64_t packs, int64_t wanted, int block) {
    constexpr int64_t ALONE = 3072, FEW_BLOCKS = 96, SPREAD_BLOCKS = 128;
    if (packs < ALONE) return 1;
    const int64_t filling = splits_for(rows, packs, wanted, 4 * block);
    return rows * filling >= FEW_BLOCKS ? filling : splits_for(rows, packs, SPREAD_BLOCKS, block / 2);
}

// The least packs of a part: of few elements, a second kernel takes longer than all of them.
template <class R>
constexpr int64_t part_least(int block) {
    return R::VEC > 1 ? 4 * block : SINGLE_MOST;
}

// Of groups of `lanes` neighbours, a power of two, the one that a thread of the grid is in.
__device__ __forceinline__ int64_t group_of_lanes(int lanes) {
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> (__ffs(lanes) - 1);
}

// The rows of a block that has at most `most`.
struct BlockRows {
    int64_t first;
    int count;
    __device__ __forceinline__ BlockRows(int64_t rows, int most)
        : first((int64_t)blockIdx.x * most), count((int)min((int64_t)most, rows - first)) {}
};

// Gives `change` where the rows of a block lie, which it brings in and which go to y then, and of a thread,
// of `lanes` that share each, the row and whether there is one. A lane has up to SHARE elements.
template <int THREADS, int SHARE, class Change>
__device__ __forceinline__ void change_local_rows(const scalar_t* x, scalar_t* y, int64_t rows,
                                                  int64_t length, int lanes, Change change) {
    __shared__ Image<THREADS, (SHARE + VEC - 1) / VEC> image;
    const BlockRows own(rows, blockDim.x / lanes);
    const int64_t first = own.first * length;
    const int count = (int)(own.count * length), row = threadIdx.x / lanes;
    scalar_t* here = image.fetch(x, first, count, rows * length, blockDim.x);
    change(here, min(row, own.count - 1), row < own.count);
    image.store(y, here, first, count, blockDim.x);
}

// Gives `take` the short row of a thread of SHORT_BLOCK, where its block has one, and its number.
template <class Take>
__device__ __forceinline__ void each_short_row(const scalar_t* x, int64_t rows, int64_t length, Take take) {
    __shared__ Image<SHORT_BLOCK, SHORT_ROW / VEC> image;
    const BlockRows own(rows, SHORT_BLOCK);
    const scalar_t* here = image.fetch(x, own.first * length, (int)(own.count * length), rows * length);
    if (threadIdx.x < own.count) take(own.first + threadIdx.x, Single(here, threadIdx.x, length));
}

// Gives `change` such a row and where all of its block's lie, to be written over: they go to y then.
template <class Change>
__device__ __forceinline__ void change_short_rows(const scalar_t* x, scalar_t* y, int64_t rows,
                                                  int64_t length, Change change) {
    __shared__ Image<SHORT_BLOCK, SHORT_ROW / VEC> image;
    const BlockRows own(rows, SHORT_BLOCK);
    const int count = (int)(own.count * length);
    scalar_t* here = image.fetch(x, own.first * length, count, rows * length);
    if (threadIdx.x < own.count) change(Single(here, threadIdx.x, length), here);
    image.store(y, here, own.first * length, count);
}

// The part of `packs` that block `part` of `splits` has. Divided in 32 bits where that does: a division
// in 64 is a hundred instructions.
struct Part {
    int64_t first, last;
    __device__ __forceinline__ Part(int64_t packs, unsigned splits, unsigned part) {
        const int64_t share = packs >> 32 ? packs / splits : (unsigned)packs / splits;
        const unsigned more = (unsigned)(packs - share * splits);  // parts with one more
        first = share * part + min(part, more);
        last = first + share + (part < more);
    }
};

// Gives `take` each of the packs of a part of a row that member `me` of `members` has, with its number,
// U at a time and in no order: the last ones, and the row's edges, alone, with `other` for what is not
// the row's. Loads without conditions are on their way together.
template <int U, class R, class Take>
__device__ __forceinline__ void each_pack(const R& row, const Part& part, int me, int members,
                                          scalar_t other, Take take) {
    using Pack = typename R::Pack;
    const Pack* packs = reinterpret_cast<const Pack*>(row.start);
    if constexpr (R::VEC == 1) {
        for (int64_t i = part.first + me; i < part.last; i += U * members) {
            Pack values[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int64_t at = i + u * members;
                values[u].at[0] = at < part.last ? packs[at].at[0] : other;
            }
            take(values, i);
        }
        return;
    }
    const int64_t first = R::WHOLE || part.first > 0 ? part.first : 1;
    const int64_t last = R::WHOLE || part.last < row.packs ? part.last : row.packs - 1;
    int64_t i = first + me;
    for (; i + (U - 1) * members < last; i += U * members) {
        Pack values[U];
#pragma unroll
        for (int u = 0; u < U; ++u) values[u] = packs[i + u * members];
        take(values, i);
    }
    for (; i < last; i += members) {
        const Pack value[1] = {packs[i]};
        take(value, i);
    }
    if (R::WHOLE) return;
    if (me == 0 && part.first == 0 && part.last > 0) {
        const Pack value[1] = {row.load(0, other)};
        take(value, 0);
    }
    if (me == members - 1 && part.last == row.packs && row.packs > 1 && part.first < part.last) {
        const Pack value[1] = {row.load(row.packs - 1, other)};
        take(value, row.packs - 1);
    }
}

// The pool keeps what goes back to it, or the driver would take it away at every synchronisation.
inline void keep_memory() {
    static bool done = false;
    if (done) return;
    int device = 0;
    cudaMemPool_t pool;
    uint64_t everything = ~0ull;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess &&
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything) == cudaSuccess)
        done = true;
}

// Memory for what blocks tell each other, none for a count of 0; goes back in the stream's order.
template <class T>
struct Scratch {
    T* data = nullptr;
    cudaStream_t stream;
    cudaError_t error = cudaSuccess;

    Scratch(int64_t count, cudaStream_t stream) : stream(stream) {
        if (!count) return;
        keep_memory();
        error = cudaMallocAsync((void**)&data, count * sizeof(T), stream);
    }
    ~Scratch() {
        if (data) cudaFreeAsync(data, stream);
    }
};
