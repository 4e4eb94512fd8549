// The k largest of each row, one block per row. As many as k threads have seen an element that
// reaches the k-th largest of the threads' maxima, so whatever is below that bound is out. The few
// others become keys in shared memory, and a key's place is the number of larger ones. A few long rows
// are cut into parts, a block for each, whose best another block puts together. Of a few in short rows
// (experts of a router) a warp does all of it, or of two where there are rows enough; of other narrow rows a block
// has many, and each thread finds its element's place.
#include <portkern/few_largest.h>
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512
#define ITEMS 4  // knob: 1 2 4
#define HALVED_FROM 8192  // knob: 0 8192 1073741824

constexpr int KEEP = 256;  // keys found in one pass over the row; a larger k takes several
constexpr int ROOM = 1024;  // candidates at once

typedef unsigned long long Key;

__device__ __forceinline__ unsigned ordered(float value) { return ordered(value, 0xffc00000u); }  // a NaN above all

__device__ __forceinline__ float value_of(unsigned order) {
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// Of equal values the first has the larger key.
__device__ __forceinline__ Key key_of(const scalar_t* row, int64_t i) {
    return (Key)ordered(float(row[i])) << 32 | ~(unsigned)i;
}

struct Candidates {
    Key keys[ROOM], sorted[KEEP];
    int count;

    // Takes a key if it lies between.
    __device__ void offer(Key key, Key above, Key below) {
        if (key <= above || key >= below) return;
        const int slot = atomicAdd(&count, 1);
        if (slot < ROOM) keys[slot] = key;
    }

    // For all threads together, as are the next two.
    __device__ int counted() {
        __syncthreads();
        const int found = count;
        __syncthreads();  // nobody adds before all have read
        return found;
    }

    __device__ void sort(int found, int want) {
        for (int i = threadIdx.x; i < found; i += blockDim.x) {
            int place = 0;
            for (int j = 0; j < found; ++j) place += keys[j] > keys[i];
            if (place < want) sorted[place] = keys[i];
        }
        __syncthreads();
    }

    // Keeps the best `want`; returns what a key must exceed from now on.
    __device__ Key shrink(int found, int want) {
        sort(found, want);
        for (int i = threadIdx.x; i < want; i += blockDim.x) keys[i] = sorted[i];
        if (threadIdx.x == 0) count = want;
        __syncthreads();
        return sorted[want - 1];
    }
};

// How many threads say so. Calls come in turns, so that one barrier each keeps writers off what
// others still read; NVIDIA's barrier counts by itself.
__device__ __forceinline__ int how_many(bool so, unsigned turn) {
#if PORTKERN_AMD
    __shared__ int counts[2][BLOCK / WARP_SIZE_MIN];
    const int here = warp_count(warp_ballot(so));
    if (threadIdx.x % WARP_SIZE == 0) counts[turn][threadIdx.x / WARP_SIZE] = here;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < blockDim.x / WARP_SIZE; ++w) total += counts[turn][w];
    return total;
#else
    return __syncthreads_count(so);
#endif
}

// The upper 16 bits of the want-th largest of the threads' values, or 0 if they are fewer.
__device__ __forceinline__ unsigned bisect(unsigned mine, int want) {
    unsigned bound = 0;
    for (unsigned bit = 1u << 31, turn = 0; bit >= 1u << 16; bit /= 2, turn ^= 1)
        if (how_many(mine >= (bound | bit), turn) >= want) bound |= bit;
    return bound;
}

// Bounded only by its threads, it is given too few registers on sm_120.
template <int V>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 512 / BLOCK) void topk_kernel(
    const scalar_t* __restrict__ x, scalar_t* __restrict__ values, int64_t* __restrict__ indices,
    Key* __restrict__ keys, int64_t cols, int64_t k, int64_t parts) {
    let_next_begin();
    constexpr int PACKS = ITEMS * VEC / V;
    __shared__ Candidates best;
    const scalar_t* row = x + blockIdx.x / parts * cols;
    const int64_t threads = blockDim.x, chunk = threads * PACKS * V;
    const Part part((cols + chunk - 1) / chunk, parts, blockIdx.x % parts);  // in chunks
    const int64_t end = min(part.last * chunk, cols);
    Key below = ~0ull;
    for (int64_t done = 0; done < k; done += KEEP) {
        const int want = min(k - done, (int64_t)KEEP);
        if (threadIdx.x == 0) best.count = 0;
        int held = best.counted();
        Key above = 0;
        float top = __int_as_float(0xff800000);  // -inf
        for (int64_t start = part.first * chunk; start < end; start += chunk) {
            Some<V> loaded[PACKS];
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                const int64_t i = start + (threadIdx.x + p * threads) * V;
#pragma unroll
                for (int j = 0; j < V; ++j) loaded[p].at[j] = scalar_t(__int_as_float(0xff800000));
                if (i < cols) loaded[p] = *reinterpret_cast<const Some<V>*>(row + i);
            }
            if (done == 0) {  // later passes have to leave out the largest
#pragma unroll
                for (int p = 0; p < PACKS; ++p)
#pragma unroll
                    for (int j = 0; j < V; ++j) top = fmaxf(top, float(loaded[p].at[j]));
                const Key bound = (Key)bisect(ordered(top), want) << 32;
                if (bound > above) above = bound - 1;
            }
            const float least = value_of(above >> 32);  // a NaN, which lets all pass, for no value
            unsigned passed = 0;
#pragma unroll
            for (int p = 0; p < PACKS; ++p)
#pragma unroll
                for (int j = 0; j < V; ++j)
                    passed |= (unsigned)!(float(loaded[p].at[j]) < least) << (p * V + j);
            for (; passed; passed &= passed - 1) {
                const int e = __ffs(passed) - 1;
                const int64_t i = start + (threadIdx.x + e / V * threads) * V + e % V;
                if (i < cols) best.offer(key_of(row, i), above, below);
            }
            int found = best.counted();
            if (found > ROOM) {  // of many equal or rising values: again, an element at a time
                if (threadIdx.x == 0) best.count = held;
                found = best.counted();
                for (int64_t i = start; i < min(start + chunk, cols); i += threads) {
                    if (found > ROOM - BLOCK) above = best.shrink(found, want);
                    if (i + threadIdx.x < cols) best.offer(key_of(row, i + threadIdx.x), above, below);
                    found = best.counted();
                }
            }
            held = found;
        }
        best.sort(held, want);
        for (int i = threadIdx.x; i < want; i += threads) {
            if (keys) {  // to be put together; a part has no fewer
                keys[blockIdx.x * k + i] = best.sorted[i];
                continue;
            }
            const unsigned at = ~(unsigned)best.sorted[i];
            values[blockIdx.x * k + done + i] = row[at];
            indices[blockIdx.x * k + done + i] = at;
        }
        below = best.sorted[want - 1];
    }
}

// The best of all parts of a row. Each part's fall: all parts' first ones come first, and what they
// leave as a bound keeps most others out.
__global__ __launch_bounds__(BLOCK) void topk_of_parts(const scalar_t* __restrict__ x,
                                                       scalar_t* __restrict__ values,
                                                       int64_t* __restrict__ indices,
                                                       const Key* keys, int64_t cols,
                                                       int k, int parts) {
    wait_for_previous();
    __shared__ Candidates best;
    const Key* own = keys + (int64_t)blockIdx.x * parts * k;
    if (threadIdx.x == 0) best.count = 0;
    int found = best.counted();
    Key above = 0;
    for (int start = 0; start < parts * k; start += BLOCK) {
        if (found > ROOM - BLOCK || (above == 0 && found >= k)) above = best.shrink(found, k);
        const int i = start + threadIdx.x;
        if (i < parts * k) best.offer(own[i % parts * k + i / parts], above, ~0ull);
        found = best.counted();
    }
    best.sort(found, k);
    for (int i = threadIdx.x; i < k; i += BLOCK) {
        const unsigned at = ~(unsigned)best.sorted[i];
        values[(int64_t)blockIdx.x * k + i] = x[blockIdx.x * cols + at];
        indices[(int64_t)blockIdx.x * k + i] = at;
    }
}

constexpr int NARROW = 128;  // columns of rows that a block has several of

// A row for `lanes` threads, a power of two that is at least as many as there are columns.
__global__ __launch_bounds__(BLOCK) void topk_narrow(const scalar_t* __restrict__ x,
                                                     scalar_t* __restrict__ values,
                                                     int64_t* __restrict__ indices, int64_t rows,
                                                     int cols, int k, int lanes) {
    __shared__ Key keys[BLOCK];
    const int column = threadIdx.x % lanes, first = threadIdx.x - column;
    const int64_t row = (int64_t)blockIdx.x * (BLOCK / lanes) + threadIdx.x / lanes;
    const bool here = row < rows && column < cols;
    const Key mine = here ? key_of(x + row * cols, column) : 0;
    keys[threadIdx.x] = mine;
    __syncthreads();
    int place = 0;
    for (int j = 0; j < cols; ++j) place += keys[first + j] > mine;
    if (!here || place >= k) return;
    values[row * k + place] = x[row * cols + column];
    indices[row * k + place] = column;
}

// What some lanes tell each other: those of a row, which are a warp or a part of it.
constexpr int ROW_LANES = WARP_SIZE_MIN;

template <int LANES>
__device__ __forceinline__ unsigned largest_of_lanes(unsigned mine) {
#if !PORTKERN_AMD && __CUDA_ARCH__ >= 800
    if constexpr (LANES == 32) return __reduce_max_sync(~warp_mask_t(), mine);
#endif
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) mine = max(mine, warp_shuffle_xor(mine, d));
    return mine;
}

// Sorted from the first lane's down, by a bitonic network.
template <int LANES>
__device__ __forceinline__ unsigned sorted_by_lanes(unsigned mine, int lane) {
#pragma unroll
    for (int size = 2; size <= LANES; size *= 2)
#pragma unroll
        for (int d = size / 2; d > 0; d /= 2) {
            const unsigned other = warp_shuffle_xor(mine, d);
            const bool larger = ((lane & size) == 0) == ((lane & d) == 0);
            mine = larger ? max(mine, other) : min(mine, other);
        }
    return mine;
}

// The sum of the values of all lanes up to the own one.
template <int LANES>
__device__ __forceinline__ int summed_by_lanes(int mine, int lane) {
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) {
        const int other = warp_shuffle_up(mine, d, LANES);
        if (lane >= d) mine += other;
    }
    return mine;
}

constexpr int LISTED = 128;  // of a row
constexpr int LANES_BLOCK = 128;

// A row for LANES lanes, each of which keeps PER elements, and at most as many of the largest: what reaches the k-th
// of the lanes' own largest is listed, and its place is the number of larger ones. Where that is too much, as
// of equal elements, the largest is taken out as often as asked for. Only what is taken out or beyond the row is
// ordered as 0.
template <int LANES, int PER, int V>
__global__ __launch_bounds__(LANES_BLOCK) void topk_by_lanes(const scalar_t* __restrict__ x,
                                                             scalar_t* __restrict__ values,
                                                             int64_t* __restrict__ indices,
                                                             int64_t rows, int cols, int k) {
    __shared__ Key listed[LANES_BLOCK / LANES][LISTED];
    const int lane = threadIdx.x % LANES;
    const int64_t wanted = group_of_lanes(LANES), row = min(wanted, rows - 1);
    const scalar_t* from = x + row * cols;
    Some<V> packs[PER / V];
#pragma unroll
    for (int p = 0; p < PER / V; ++p)
        if ((p * LANES + lane) * V < cols) packs[p] = reinterpret_cast<const Some<V>*>(from)[p * LANES + lane];
    const auto column = [&](int e) { return (e / V * LANES + lane) * V + e % V; };
    unsigned order[PER], most = 0;
#pragma unroll
    for (int e = 0; e < PER; ++e) {
        order[e] = column(e) < cols ? ordered(float(packs[e / V].at[e % V])) : 0;
        most = max(most, order[e]);
    }
    const unsigned bound = max(warp_shuffle(sorted_by_lanes<LANES>(most, lane), k - 1, LANES), 1u);
    int own = 0;
#pragma unroll
    for (int e = 0; e < PER; ++e) own += order[e] >= bound;
    const int sum = summed_by_lanes<LANES>(own, lane), count = warp_shuffle(sum, LANES - 1, LANES);
    Key* const list = listed[threadIdx.x / LANES];
    int next = sum - own;
#pragma unroll
    for (int e = 0; e < PER; ++e)
        if (order[e] >= bound && count <= LISTED) list[next++] = (Key)order[e] << 32 | ~(unsigned)column(e);
    const bool all = warp_ballot(count > LISTED) == 0;  // rows of a warp go the same way
#if PORTKERN_AMD
    __syncthreads();
#else
    __syncwarp();
#endif
    if (all) {
        for (int i = lane; i < count; i += LANES) {
            const Key key = list[i];
            int place = 0;
            for (int j = 0; j < count; ++j) place += list[j] > key;
            if (place >= k || wanted >= rows) continue;
            const unsigned at = ~(unsigned)key;
            values[row * k + place] = from[at];
            indices[row * k + place] = at;
        }
        return;
    }
    int mine = 0;
    for (int i = 0; i < k; ++i) {
        unsigned best = 0, at = 0;
#pragma unroll
        for (int e = 0; e < PER; ++e)
            if (order[e] > best) best = order[e], at = column(e);
        const unsigned top = largest_of_lanes<LANES>(best);
        const int first = (int)~largest_of_lanes<LANES>(best == top ? ~at : 0);
        if (lane == i) mine = first;
#pragma unroll
        for (int e = 0; e < PER; ++e)
            if (column(e) == first) order[e] = 0;
    }
    if (lane >= k || wanted >= rows) return;
    values[row * k + lane] = from[mine];
    indices[row * k + lane] = mine;
}

// A row for LANES lanes, each of which keeps the K largest that it has seen.
template <int LANES, int K, int V>
__global__ PORTABLE_LAUNCH_BOUNDS(LANES_BLOCK, V == 1 ? 6 : 8) void topk_of_few(const scalar_t* __restrict__ x, scalar_t* __restrict__ values,
                                                           int64_t* __restrict__ indices, int64_t rows, int cols, int k,
                                                           unsigned mask) {
    const int lane = threadIdx.x % LANES;
    const int64_t wanted = group_of_lanes(LANES), row = min(wanted, rows - 1);
    const scalar_t* from = x + row * cols;
    const auto put = [&](int i, int at) {
        if (i >= k || wanted >= rows) return;
        values[row * k + i] = from[at];
        indices[row * k + i] = at;
    };
    const Quick quick = {mask};
    Quick::Key out;
    const auto best = few_largest<LANES, K, V>(from, cols, lane, quick, out);
    if (warp_all(quick.knows(best, out, k))) {
        each_own<LANES, K>(best.at, lane, [&](int i, unsigned key) { put(i, quick.place(key)); });
        return;
    }
    const Exact exact = {0xffc00000u};
    Exact::Key beyond;
    const auto sure = few_largest<LANES, K, V>(from, cols, lane, exact, beyond);
    each_own<LANES, K>(sure.at, lane, [&](int i, Exact::Key key) { put(i, exact.place(key)); });
}

template <int LANES, int K>
int launch_few(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows, int64_t cols, int64_t k, bool whole,
               cudaStream_t stream) {
    const auto kernel = whole ? topk_of_few<LANES, K, VEC> : topk_of_few<LANES, K, 1>;
    const Blocks blocks = blocks_for(rows * LANES, LANES_BLOCK);
    kernel<<<blocks.count, blocks.threads, 0, stream>>>(x, values, indices, rows, (int)cols, (int)k,
                                                        Quick::mask_of(cols));
    return (int)cudaGetLastError();
}

// Keys of 16-bit values are exact; of 32 bits the best of what is left is needed, too, which pays where rows are many.
inline bool is_of_few(int64_t rows, int64_t cols, int64_t k) {
    const bool suits = sizeof(scalar_t) == 2 ? cols <= 512 : cols <= 128 && rows >= 16384;
    return k <= 8 && cols > ROW_LANES && suits;
}

constexpr int MOST_BY_LANES = 1024;  // columns
inline bool is_by_lanes(int64_t cols, int64_t k) {
    const bool lists_few = k <= ROW_LANES * 3 / 4 || cols <= 4 * ROW_LANES;
    return cols > ROW_LANES && cols <= MOST_BY_LANES && k <= ROW_LANES && 4 * k <= cols && lists_few;
}

// PER is the least power of two that does.
template <int LANES, int PER>
int launch_by_lanes(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows, int64_t cols,
                    int64_t k, bool whole, cudaStream_t stream) {
    if constexpr (PER > 2)
        if (PER / 2 * LANES >= cols)
            return launch_by_lanes<LANES, PER / 2>(x, values, indices, rows, cols, k, whole, stream);
    constexpr int V = PER < VEC ? PER : VEC;
    const auto kernel = whole ? topk_by_lanes<LANES, PER, V> : topk_by_lanes<LANES, PER, 1>;
    const Blocks blocks = blocks_for(rows * LANES, LANES_BLOCK);
    kernel<<<blocks.count, blocks.threads, 0, stream>>>(x, values, indices, rows, (int)cols, (int)k);
    return (int)cudaGetLastError();
}

int launch_narrow(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows, int64_t cols,
                  int64_t k, cudaStream_t stream) {
    int lanes = 1;
    while (lanes < cols) lanes *= 2;
    const int64_t each = BLOCK / lanes;
    topk_narrow<<<(unsigned)((rows + each - 1) / each), BLOCK, 0, stream>>>(
        x, values, indices, rows, (int)cols, (int)k, lanes);
    return (int)cudaGetLastError();
}

template <int V>
int launch(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows, int64_t cols,
           int64_t k, cudaStream_t stream) {
    constexpr int64_t FILL = 512, LEAST = 4;  // blocks, and chunks of a part
    unsigned threads = WARP_SIZE_MAX;  // a bound takes more than k of them
    while (threads < BLOCK && (threads * ITEMS * VEC < cols || threads < 2 * k)) threads *= 2;
    const int64_t chunks = cols / (threads * ITEMS * VEC);
    const int64_t parts = k <= KEEP ? splits_for(rows, chunks, FILL, LEAST) : 1;
    Scratch<Key> keys(parts > 1 ? rows * parts * k : 0, stream);
    if (keys.error) return (int)keys.error;
    topk_kernel<V><<<(unsigned)(rows * parts), threads, 0, stream>>>(x, values, indices, keys.data,
                                                                     cols, k, parts);
    if (parts > 1)
        launch_next(topk_of_parts, rows, BLOCK, stream, x, values, indices, keys.data, cols, (int)k, (int)parts);
    return (int)cudaGetLastError();
}

extern "C" int topk(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows,
                    int64_t cols, int64_t kept, int64_t k, cudaStream_t stream) {
    if (rows == 0 || k == 0) return 0;
    if (cols >= (int64_t)1 << 31) return (int)cudaErrorInvalidValue;  // a key's index has 32 bits
    const bool whole = are_whole((uintptr_t)x, cols);
    if (is_of_few(rows, cols, k)) {
        const bool many = rows >= 4096;
        const auto start = k <= 4 ? (many ? launch_few<4, 4> : launch_few<16, 4>)
                                  : (many ? launch_few<4, 8> : launch_few<16, 8>);
        return start(x, values, indices, rows, cols, k, whole, stream);
    }
    if (is_by_lanes(cols, k)) {
        constexpr int MOST = MOST_BY_LANES / ROW_LANES, HALF = ROW_LANES / 2;
        if (rows >= HALVED_FROM && k <= HALF * 3 / 4 && cols <= MOST / 2 * HALF)
            return launch_by_lanes<HALF, MOST / 2>(x, values, indices, rows, cols, k, whole, stream);
        return launch_by_lanes<ROW_LANES, MOST>(x, values, indices, rows, cols, k, whole, stream);
    }
    if (cols <= NARROW) return launch_narrow(x, values, indices, rows, cols, k, stream);
    return whole ? launch<VEC>(x, values, indices, rows, cols, k, stream)
                 : launch<1>(x, values, indices, rows, cols, k, stream);
}
