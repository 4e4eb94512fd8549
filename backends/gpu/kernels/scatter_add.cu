// x with rows of src added, in an order that hangs on sizes alone, so that sums are the same every time;
// but for the last of the four ways.
//
// A block owns some rows of a band of columns, which nobody else writes. It looks through the whole
// index for what they get and puts that in order; then each warp takes a row, its sum in float32
// registers. Where few rows get much, there would be few blocks, and lists without end: there a block
// has a part of the index, and sums of all rows in shared memory. Where few of many rows get anything,
// x is copied and these are written over. Where many rows get more than lists hold, or an index of float32 is
// long or its entries short, sums are float32 atomics: putting so much in order would take several times as long.
#include <portkern/copy.h>

#define BLOCK 512  // knob: 256 512 1024
#define BLOCKS 256  // knob: 128 256 512 1024 (hip: 512)
#define ITEMS 16  // knob: 16 32

constexpr int LIST = 1024;  // additions that a block can note; if it has more, warps read the index
constexpr int SCAN = 8;  // indices in flight per thread

typedef unsigned long long Key;  // where in the index, then the row of those the block owns
constexpr int ROW_BITS = 24;

// Returns how many there are; the first LIST of them are in `list`, in the index's order.
__device__ int find(const int64_t* __restrict__ index, int64_t n, int64_t row0, int64_t tall,
                    Key* list) {
    __shared__ Key found[LIST];
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int64_t first = threadIdx.x; first < n; first += BLOCK * SCAN) {
        int64_t row[SCAN];
#pragma unroll
        for (int u = 0; u < SCAN; ++u)
            row[u] = first + u * BLOCK < n ? index[first + u * BLOCK] - row0 : -1;
#pragma unroll
        for (int u = 0; u < SCAN; ++u) {
            if (row[u] < 0 || row[u] >= tall) continue;
            const int slot = atomicAdd(&count, 1);
            if (slot < LIST) found[slot] = (Key)(first + u * BLOCK) << ROW_BITS | row[u];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < min(count, LIST); i += BLOCK) {
        int place = 0;
        for (int j = 0; j < min(count, LIST); ++j) place += found[j] < found[i];
        list[place] = found[i];
    }
    __syncthreads();
    return count;
}

// A warp has PACKS of each lane at once of a row's band of columns, and of the additions to them several on
// their way together, which are added in their order.
template <int V, int PACKS>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void scatter_add_kernel(
    const scalar_t* __restrict__ x, const int64_t* __restrict__ index,
    const scalar_t* __restrict__ src, scalar_t* __restrict__ y, int64_t rows, int64_t dim,
    int64_t n, int64_t tall, int64_t bands) {
    constexpr int AHEAD = PACKS * V > 8 ? 1 : PACKS * V > 4 ? 2 : 8;  // as 64 registers hold
    __shared__ Key list[LIST];
    const int64_t row0 = blockIdx.x / bands * tall;
    const int count = find(index, n, row0, tall, list), lane = threadIdx.x % WARP_SIZE;
    const int64_t length = count <= LIST ? count : n;
    const int64_t width = dim / V, across = (width + bands - 1) / bands;
    const int64_t band = blockIdx.x % bands * across;
    const int at_once = PACKS * WARP_SIZE, own = (int)min(across, width - band);
    const int chunks = max((own + at_once - 1) / at_once, 0), pieces = (int)min(tall, rows - row0) * chunks;
    for (int piece = threadIdx.x / WARP_SIZE; piece < pieces; piece += BLOCK / WARP_SIZE) {
        const int row = piece / chunks, first_column = piece % chunks * at_once + lane;
        const int columns = own - first_column;
        const Some<V>* terms = reinterpret_cast<const Some<V>*>(src) + band + first_column;
        const int64_t start = (row0 + row) * width + band + first_column;
        float total[PACKS][V];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            Some<V> values;
            if (k * WARP_SIZE < columns)
                values = reinterpret_cast<const Some<V>*>(x)[start + k * WARP_SIZE];
#pragma unroll
            for (int j = 0; j < V; ++j) total[k][j] = float(values.at[j]);
        }
        for (int64_t first = 0; first < length; first += WARP_SIZE) {
            int64_t at = first + lane, owner = -1;
            if (at < length && count <= LIST) {
                owner = list[at] % (1 << ROW_BITS);
                at = list[at] >> ROW_BITS;
            } else if (at < length) {
                owner = index[at] - row0;
            }
            warp_mask_t hits = warp_ballot(owner == row);
            while (hits) {
                Some<V> values[AHEAD][PACKS];
                const int taken = min((int)warp_count(hits), AHEAD);
#pragma unroll
                for (int u = 0; u < AHEAD; ++u) {
                    if (u >= taken) break;
                    const Some<V>* from = terms + warp_shuffle(at, warp_first(hits)) * width;
                    hits &= hits - 1;
#pragma unroll
                    for (int k = 0; k < PACKS; ++k)
                        if (k * WARP_SIZE < columns) values[u][k] = from[k * WARP_SIZE];
                }
#pragma unroll
                for (int u = 0; u < AHEAD; ++u) {
                    if (u >= taken) break;
#pragma unroll
                    for (int k = 0; k < PACKS; ++k)
#pragma unroll
                        for (int j = 0; j < V; ++j) total[k][j] += float(values[u][k].at[j]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (k * WARP_SIZE >= columns) continue;
            Some<V> values;
#pragma unroll
            for (int j = 0; j < V; ++j) values.at[j] = scalar_t(total[k][j]);
            reinterpret_cast<Some<V>*>(y)[start + k * WARP_SIZE] = values;
        }
    }
}

// ---- Few rows that get much

constexpr int CROWD = 128, CHUNK = 1024, FILL = 1024, LEAST_PART = 64;
// Per thread: 32 KB of a block. AMD's compute units have 64 KB, of which three blocks then have room.
constexpr int SUMS = PORTKERN_AMD ? 32 : 64;
constexpr int UNROLL = 8;

// Of `length` entries from `first` on, those of rows [row0, row0 + tall) in their order: the row of the
// tile, then the place after `first`. Returns how many there are.
__device__ int entries_of(const int64_t* __restrict__ index, int64_t first, int length, int64_t row0,
                          int tall, int* list) {
    constexpr int SHARE = CHUNK / CROWD;
    __shared__ int counts[CROWD / WARP_SIZE_MIN];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    int64_t row[SHARE];
#pragma unroll
    for (int u = 0; u < SHARE; ++u) {
        const int at = threadIdx.x + u * CROWD;
        row[u] = at < length ? index[first + at] - row0 : -1;
    }
    int count = 0;
#pragma unroll
    for (int u = 0; u < SHARE; ++u) {
        const bool here = row[u] >= 0 && row[u] < tall;
        const warp_mask_t hits = warp_ballot(here);
        if (lane == 0) counts[warp] = warp_count(hits);
        __syncthreads();
        int place = count + warp_count(hits & (((warp_mask_t)1 << lane) - 1));
        for (int w = 0; w < CROWD / WARP_SIZE; ++w) {
            if (w < warp) place += counts[w];
            count += counts[w];
        }
        if (here) list[place] = (int)row[u] * CHUNK + threadIdx.x + u * CROWD;
        __syncthreads();
    }
    return count;
}

// A block has a part of the entries, a tile of rows and a band of columns. Its threads stand in groups
// as wide as the band, which take entries in turns; a thread alone adds to its sums.
template <int V>
__global__ __launch_bounds__(CROWD) void scatter_add_crowded(
    const int64_t* __restrict__ index, const scalar_t* __restrict__ src, float* __restrict__ partial,
    int64_t rows, int64_t dim, int64_t n, int wide, int64_t parts, int64_t tiles) {
    let_next_begin();
    constexpr int TALL = SUMS / V;
    __shared__ float sums[TALL][CROWD * V];
    __shared__ int list[CHUNK];
    const int64_t part = blockIdx.x % parts, row0 = blockIdx.x / parts % tiles * TALL;
    const int64_t band = blockIdx.x / (parts * tiles) * wide, width = dim / V;
    const int tall = min((int64_t)TALL, rows - row0), across = min((int64_t)wide, width - band);
    const int groups = CROWD / wide, group = threadIdx.x / wide;
    const bool active = group < groups && threadIdx.x % wide < across;
    const Some<V>* in = reinterpret_cast<const Some<V>*>(src) + band + threadIdx.x % wide;
    for (int r = 0; r < tall; ++r)
        for (int j = 0; j < V; ++j) sums[r][threadIdx.x * V + j] = 0.0f;
    const auto take = [&](const Some<V>& values, int entry) {
        float* to = &sums[entry / CHUNK][threadIdx.x * V];
#pragma unroll
        for (int j = 0; j < V; ++j) to[j] += float(values.at[j]);
    };
    const Part mine(n, parts, part);
    for (int64_t first = mine.first; first < mine.last; first += CHUNK) {
        const int length = (int)min((int64_t)CHUNK, mine.last - first);
        const int count = entries_of(index, first, length, row0, tall, list);
        int i = active ? group : count;
        for (; i + (UNROLL - 1) * groups < count; i += UNROLL * groups) {
            Some<V> values[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                values[u] = in[(first + list[i + u * groups] % CHUNK) * width];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) take(values[u], list[i + u * groups]);
        }
        for (; i < count; i += groups) take(in[(first + list[i] % CHUNK) * width], list[i]);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < tall * across * V; i += CROWD) {
        const int row = i / (across * V), column = i % (across * V);
        float total = 0.0f;
        for (int g = 0; g < groups; ++g) total += sums[row][g * wide * V + column];
        partial[(part * rows + row0 + row) * dim + band * V + column] = total;
    }
}

// x with what the parts have, of all elements side by side.
__global__ __launch_bounds__(CROWD) void scatter_add_parts(const scalar_t* __restrict__ x,
                                                           const float* partial,
                                                           scalar_t* __restrict__ y, int64_t count,
                                                           int64_t parts, int lanes) {
    wait_for_previous();
    const int64_t i = ((int64_t)blockIdx.x * CROWD + threadIdx.x) / lanes;
    float total = 0.0f;
    for (int64_t part = threadIdx.x % lanes; i < count && part < parts; part += lanes)
        total += partial[part * count + i];
    total = lane_reduce<Sum>(total, lanes);
    if (threadIdx.x % lanes == 0 && i < count) y[i] = scalar_t(float(x[i]) + total);
}

template <int V>
int launch_crowded(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                   int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    const int64_t width = dim / V, bands = (width + CROWD - 1) / CROWD, tall = SUMS / V;
    const int wide = (int)((width + bands - 1) / bands);
    const int64_t tiles = (rows + tall - 1) / tall;
    // Sums of a part are written and read again: as little as its entries, or less.
    const int64_t least = 4 * rows < LEAST_PART ? LEAST_PART : 4 * rows;
    const int64_t parts = splits_for(tiles * bands, n, FILL, least < CHUNK / 2 ? least : CHUNK / 2);
    Scratch<float> partial(parts * rows * dim, stream);
    if (partial.error) return (int)partial.error;
    scatter_add_crowded<V><<<(unsigned)(parts * tiles * bands), CROWD, 0, stream>>>(
        index, src, partial.data, rows, dim, n, wide, parts, tiles);
    const int lanes = lanes_for(parts, 8);
    const int64_t blocks = (rows * dim * lanes + CROWD - 1) / CROWD;
    launch_next(scatter_add_parts, blocks, CROWD, stream, x, partial.data, y, rows * dim, parts, lanes);
    return (int)cudaGetLastError();
}

// Each tile of rows reads the index again, which shall be little beside the entries.
bool is_crowded(int64_t rows, int64_t n) { return rows <= 1024 && n >= 256 && n >= 32 * rows; }

// ---- Few of many rows get anything

// A warp has an entry and a band of columns. The first entry of a row brings all of them. Bounded only
// by its threads, it is given too few registers.
template <int V>
__global__ PORTABLE_LAUNCH_BOUNDS(COPY, 2) void scatter_add_sparse(
    const scalar_t* __restrict__ x, const int64_t* __restrict__ index,
    const scalar_t* __restrict__ src, scalar_t* __restrict__ y, int64_t dim, int64_t n,
    int64_t bands) {
    constexpr int PACKS = ITEMS / V;
    const int64_t mine = (int64_t)blockIdx.x * (COPY / WARP_SIZE) + threadIdx.x / WARP_SIZE;
    const int64_t entry = mine / bands, width = dim / V;
    if (entry >= n) return;
    const int lane = threadIdx.x % WARP_SIZE;
    const int64_t row = index[entry], column = mine % bands * PACKS * WARP_SIZE + lane;
    float total[PACKS][V];
    const auto take = [&](const scalar_t* from, bool begin) {
        const Some<V>* packs = reinterpret_cast<const Some<V>*>(from) + column;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (column + k * WARP_SIZE >= width) continue;
            const Some<V> values = packs[k * WARP_SIZE];
#pragma unroll
            for (int j = 0; j < V; ++j)
                total[k][j] = float(values.at[j]) + (begin ? 0.0f : total[k][j]);
        }
    };
    take(x + row * dim, true);
    for (int64_t start = 0; start < n; start += SCAN * WARP_SIZE) {
        bool same[SCAN];
#pragma unroll
        for (int u = 0; u < SCAN; ++u) {  // without conditions, so that all are on their way together
            const int64_t at = start + u * WARP_SIZE + lane;
            same[u] = index[min(at, n - 1)] == row && at < n;
        }
#pragma unroll
        for (int u = 0; u < SCAN; ++u) {
            const int64_t first = start + u * WARP_SIZE;
            warp_mask_t hits = warp_ballot(same[u]);
            if (hits && first + warp_first(hits) < entry) return;
#pragma unroll 1
            for (; hits; hits &= hits - 1) take(src + (first + warp_first(hits)) * dim, false);
        }
    }
    wait_for_previous();
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (column + k * WARP_SIZE >= width) continue;
        Some<V> values;
#pragma unroll
        for (int j = 0; j < V; ++j) values.at[j] = scalar_t(total[k][j]);
        reinterpret_cast<Some<V>*>(y + row * dim)[column + k * WARP_SIZE] = values;
    }
}

template <int V>
int launch_sparse(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                  int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    if (const int error = copy(x, y, rows * dim, stream)) return error;
    const int64_t band = ITEMS * WARP_SIZE_MIN, bands = (dim + band - 1) / band;
    const int64_t warps = COPY / WARP_SIZE_MAX;
    launch_next(scatter_add_sparse<V>, (n * bands + warps - 1) / warps, COPY, stream, x, index, src, y, dim, n,
                bands);
    return (int)cudaGetLastError();
}

// Each entry is held against all others, and there are two launches.
bool is_sparse(int64_t rows, int64_t dim, int64_t n) {
    return n > 0 && n <= 2048 && 4 * n <= rows && rows * dim >= 1 << 20;
}

// ---- Many rows get more than lists hold

__global__ __launch_bounds__(COPY) void scatter_add_widen(const scalar_t* __restrict__ x,
                                                          float* __restrict__ sums, int64_t count) {
    let_next_begin();
    const int64_t i = (int64_t)blockIdx.x * COPY + threadIdx.x;
    if (i < count) sums[i] = float(x[i]);
}

__global__ __launch_bounds__(COPY) void scatter_add_narrow(const float* __restrict__ sums,
                                                           scalar_t* __restrict__ y,
                                                           int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * COPY + threadIdx.x;
    if (i < count) y[i] = scalar_t(sums[i]);
}

// Added to sums that lie side by side, four in an instruction where there is one.
template <int V>
__device__ __forceinline__ void add_to(float* sums, const Some<V>& more) {
#if defined(PORTKERN_HOPPER) && defined(PORTKERN_CLUSTERS)  // the SIMT executor has neither
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int j = 0; j < V; j += 4)
            asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums + j), "f"(float(more.at[j])),
                         "f"(float(more.at[j + 1])), "f"(float(more.at[j + 2])), "f"(float(more.at[j + 3])) : "memory");
        return;
    }
#endif
#pragma unroll
    for (int j = 0; j < V; ++j) atomicAdd(sums + j, float(more.at[j]));
}

template <int V>
__global__ __launch_bounds__(COPY) void scatter_add_atomic(const int64_t* __restrict__ index,
                                                           const scalar_t* __restrict__ src,
                                                           float* sums, int64_t width, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * COPY + threadIdx.x;
    const int64_t entry = (n * width + COPY) >> 32 ? i / width : (unsigned)i / (unsigned)width;
    if (entry >= n) return;
    const Some<V> more = reinterpret_cast<const Some<V>*>(src)[i];
    float* to = sums + (index[entry] * width + i - entry * width) * V;
    wait_for_previous();
    add_to<V>(to, more);
}

template <int V>
int launch_long(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    constexpr bool WIDE = sizeof(scalar_t) == sizeof(float);  // then y has room for the sums
    const int64_t count = rows * dim;
    Scratch<float> own(WIDE ? 0 : count, stream);
    if (own.error) return (int)own.error;
    float* sums = WIDE ? reinterpret_cast<float*>(y) : own.data;
    const unsigned blocks = (unsigned)((count + COPY - 1) / COPY);
    if (!WIDE)
        scatter_add_widen<<<blocks, COPY, 0, stream>>>(x, sums, count);
    else if (const int error = copy(x, y, count, stream))
        return error;
    launch_next(scatter_add_atomic<V>, (n * (dim / V) + COPY - 1) / COPY, COPY, stream, index, src, sums, dim / V, n);
    if (!WIDE) scatter_add_narrow<<<blocks, COPY, 0, stream>>>(sums, y, count);
    return (int)cudaGetLastError();
}

// ---- A few entries

// Or some hundred, of so few elements that holding each against each takes less than sorting them; or some
// thousand, if in all they are so few that it does not matter in which order they are read.
bool is_few(int64_t rows, int64_t dim, int64_t n) {
    if (rows * dim >= (int64_t)1 << 31) return false;
    return n <= 8 || (n <= 512 && rows * dim * n <= 1 << 20) ||
           (n <= 2048 && n * dim <= 1 << 15 && rows * dim * n <= 1 << 22);
}

// Of fewer elements a thread has one: packs would leave most of a GPU idle.
constexpr int64_t ALONE = 2048;

// LANES have a pack, and hold each entry against its row, SCAN of each lane under way: nothing else has
// to be known.
template <int V, int LANES>
__global__ __launch_bounds__(COPY) void scatter_add_few(const scalar_t* __restrict__ x,
                                                        const int64_t* __restrict__ index,
                                                        const scalar_t* __restrict__ src,
                                                        scalar_t* __restrict__ y, unsigned packs,
                                                        unsigned width, int n) {
    const unsigned me = (blockIdx.x * COPY + threadIdx.x) / LANES, i = min(me, packs - 1);
    const unsigned row = i / width, column = i - row * width;
    const int lane = threadIdx.x % LANES;
    Some<V> result = reinterpret_cast<const Some<V>*>(x)[i];
    float sums[V] = {};
    unsigned rows[SCAN];  // of which there are fewer than 2^31
    const auto ask = [&](int first) {
#pragma unroll
        for (int u = 0; u < SCAN; ++u)
            rows[u] = first + u * LANES < n ? (unsigned)index[first + u * LANES] : ~0u;
    };
    ask(lane);
    for (int first = lane; first < n; first += SCAN * LANES) {
        bool mine[SCAN];
        Some<V> more[SCAN];
#pragma unroll
        for (int u = 0; u < SCAN; ++u) mine[u] = rows[u] == row;
#pragma unroll
        for (int u = 0; u < SCAN; ++u) {
            const int64_t entry = first + u * LANES;
            if (mine[u]) more[u] = reinterpret_cast<const Some<V>*>(src)[entry * width + column];
        }
        if (LANES > 8) ask(first + SCAN * LANES);  // the next ones, while these are on their way
#pragma unroll
        for (int u = 0; u < SCAN; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (mine[u]) sums[j] += float(more[u].at[j]);
    }
#pragma unroll
    for (int j = 0; j < V; ++j)
        result.at[j] = scalar_t(float(result.at[j]) + lane_reduce<Sum>(sums[j], LANES));
    if (lane == 0 && me < packs) reinterpret_cast<Some<V>*>(y)[i] = result;
}

template <int V>
int launch_few(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
               int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    constexpr int MORE = 8, MOST = 32;
    const int lanes = n > MORE * SCAN ? MOST : n > MORE ? MORE : 1;
    const unsigned packs = (unsigned)(rows * dim / V);
    const auto kernel = lanes == MOST   ? scatter_add_few<V, MOST>
                        : lanes == MORE ? scatter_add_few<V, MORE>
                                        : scatter_add_few<V, 1>;
    kernel<<<(unsigned)(((int64_t)packs * lanes + COPY - 1) / COPY), COPY, 0, stream>>>(
        x, index, src, y, packs, (unsigned)(dim / V), (int)n);
    return (int)cudaGetLastError();
}

// ----

template <int V>
int launch(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y, int64_t rows,
           int64_t dim, int64_t n, cudaStream_t stream) {
    const int64_t bands = (dim + 32 * ITEMS - 1) / (32 * ITEMS);
    const int64_t share = (rows * bands + BLOCKS - 1) / BLOCKS, most = (int64_t)1 << ROW_BITS;
    const int64_t tall = share < most ? share : most;
    const int64_t owners = (rows + tall - 1) / tall;
    // Every owner reads the whole index, which of so much, or of so little else, takes longer than float32 atomics do.
    const bool scanned = (n >= (int64_t)1 << 15 && (sizeof(scalar_t) == sizeof(float) || dim <= 128)) ||
                         (n >= 1024 && n * dim < (int64_t)1 << 20 &&
                          (sizeof(scalar_t) == sizeof(float) || rows * dim <= (int64_t)1 << 22));  // all become float32
    if (scanned || n > LIST / 2 * owners) return launch_long<V>(x, index, src, y, rows, dim, n, stream);
    // Of few rows a warp has part of one: it would wait for all of them alone.
    constexpr int LEAST = V < 4 ? 4 / V : 1, WARPS = BLOCK / WARP_SIZE_MIN;
    const auto kernel = tall < WARPS ? scatter_add_kernel<V, LEAST> : scatter_add_kernel<V, ITEMS / V>;
    kernel<<<(unsigned)(owners * bands), BLOCK, 0, stream>>>(x, index, src, y, rows, dim, n, tall, bands);
    return (int)cudaGetLastError();
}

extern "C" int scatter_add(const scalar_t* x, const int64_t* index, const scalar_t* src,
                           scalar_t* y, int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    if (rows == 0 || dim == 0) return 0;
    constexpr int FEW = 4;  // elements of an access: more would leave a thread fewer rows
    const bool aligned = ((uintptr_t)x | (uintptr_t)src | (uintptr_t)y) % 16 == 0;
    const bool packed = aligned && dim % VEC == 0;
    // A few entries, too, if what is moved takes so long that holding all packs against them is not free.
    const bool large = rows * dim >= (int64_t)1 << (packed ? 22 : 20);
    if (is_few(rows, dim, n) && !(large && is_sparse(rows, dim, n)))
        return (packed && rows * dim > ALONE ? launch_few<VEC> : launch_few<1>)(x, index, src, y, rows,
                                                                             dim, n, stream);
    if (is_crowded(rows, n))
        return (aligned && dim % FEW == 0 ? launch_crowded<FEW> : launch_crowded<1>)(
            x, index, src, y, rows, dim, n, stream);
    if (is_sparse(rows, dim, n))
        return (packed ? launch_sparse<VEC> : launch_sparse<1>)(x, index, src, y, rows, dim, n,
                                                                stream);
    if (packed) return launch<VEC>(x, index, src, y, rows, dim, n, stream);
    return launch<1>(x, index, src, y, rows, dim, n, stream);
}
