// Transpose through a padded tile in shared memory: 16-byte accesses on both sides. Of a thin matrix
// the tile is as thin, and so much longer; where it has no packs or is small, all lines of a stretch
// are a tile. Lines that begin anywhere are read and written in packs of memory all the same. A vector
// is copied. Tiles that are whole have no conditions: loads wait behind them.
#include <portkern/copy.h>

#define BLOCK 256  // knob: 128 256 512
#define TILE 64  // knob: 32 64
#define SMALL 1048576  // knob: 0 262144 1048576

constexpr int THIN_TILE = 6144, THIN_MOST = 31;  // elements of a thin tile, and lines
constexpr int FILL = 256;  // blocks that a GPU is to have, if that leaves a warp's share to each
constexpr int FEW_LINES = 4;  // of at most SMALL elements: a tile of packs would be nearly empty
constexpr int SIDE = 32;  // of a small tile
constexpr int SHIFTED_TALL = 128;  // rows of a tile whose lines begin anywhere

template <bool B>
struct Known {
    static constexpr bool value = B;
};

// `tiles`: how many there are across. Without packs the next tile is the one below, whose part of a
// line of y begins in the 32 bytes where this one's ends: both are written to memory at once.
template <int V, int TALL, int AREA>
__global__ __launch_bounds__(BLOCK) void transpose_kernel(const scalar_t* __restrict__ x,
                                                          scalar_t* __restrict__ y, int64_t rows,
                                                          int64_t cols, unsigned tiles) {
    constexpr int WIDE = AREA / TALL, PACKS = AREA / V;
    constexpr int ROUNDS = (PACKS + BLOCK - 1) / BLOCK, ACROSS = WIDE / V, DOWN = TALL / V;
    // Padded by 4 bytes, so that a column's elements lie in different banks.
    __shared__ scalar_t tile[TALL][WIDE + 4 / sizeof(scalar_t)];
    const unsigned below = (unsigned)((rows + TALL - 1) / TALL);
    const int64_t row0 = (int64_t)(V > 1 ? blockIdx.x / tiles : blockIdx.x % below) * TALL;
    const int64_t col0 = (int64_t)(V > 1 ? blockIdx.x % tiles : blockIdx.x / below) * WIDE;
    const int tall = (int)min((int64_t)TALL, rows - row0), wide = (int)min((int64_t)WIDE, cols - col0);
    const scalar_t* from = x + row0 * cols + col0;
    scalar_t* to = y + col0 * rows + row0;
    const auto move = [&](auto whole) {
#pragma unroll
        for (int k = 0; k < ROUNDS; ++k) {
            const int p = k * BLOCK + threadIdx.x, r = p / ACROSS, c = p % ACROSS * V;
            if (!(whole.value && PACKS % BLOCK == 0) && (r >= tall || c >= wide)) continue;
            const Some<V> values = *reinterpret_cast<const Some<V>*>(from + r * cols + c);
#pragma unroll
            for (int j = 0; j < V; ++j) tile[r][c + j] = values.at[j];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ROUNDS; ++k) {
            const int p = k * BLOCK + threadIdx.x, c = p / DOWN, r = p % DOWN * V;
            if (!(whole.value && PACKS % BLOCK == 0) && (r >= tall || c >= wide)) continue;
            Some<V> values;
#pragma unroll
            for (int j = 0; j < V; ++j) values.at[j] = tile[r + j][c];
            // Counted in packs: compilers merge the stores only where the type shows the alignment.
            reinterpret_cast<Some<V>*>(to)[(c * rows + r) / V] = values;
        }
    };
    if (tall == TALL && wide == WIDE) move(Known<true>());
    else move(Known<false>());
}

// Lines that begin anywhere: a line of the tile lies in shared memory as far after a pack's beginning
// as in memory. A block writes the packs of y's lines that begin beside its tile, for which it reads
// up to VEC - 1 rows more; the first of a line also what lies before its first pack.
__global__ __launch_bounds__(BLOCK) void transpose_shifted(const scalar_t* __restrict__ x,
                                                           scalar_t* __restrict__ y, int64_t rows,
                                                           int64_t cols, unsigned down) {
    constexpr unsigned TALL = SHIFTED_TALL, HIGH = TALL + VEC, ACROSS = TILE / VEC + 1;
    constexpr unsigned ROUNDS = (HIGH * ACROSS + BLOCK - 1) / BLOCK, PACKS = TILE * TALL / VEC;
    constexpr unsigned BESIDE = 4;  // packs of a line that a warp writes, of eight lines
    // A pack is left out after VEC rows: what a warp reads of them lies in different banks.
    __shared__ Bits tile[HIGH * ACROSS + HIGH / VEC];
    const auto place = [](unsigned r) { return r * ACROSS + r / VEC; };
    const int64_t row0 = (int64_t)(blockIdx.x % down) * TALL;
    const int64_t col0 = (int64_t)(blockIdx.x / down) * TILE;
    const unsigned high = (unsigned)min((int64_t)HIGH, rows - row0);
    const int wide = (int)min((int64_t)TILE, cols - col0);
    const scalar_t *from = x + row0 * cols + col0, *end = x + rows * cols;
    const unsigned pitch = (unsigned)(cols % VEC), begin = skipped(from);
    const auto skip = [&](unsigned r) { return (begin + r * pitch) % VEC; };
    const auto load = [&](auto inner) {
        Bits held[ROUNDS];
#pragma unroll
        for (unsigned k = 0; k < ROUNDS; ++k) {
            const unsigned p = k * BLOCK + threadIdx.x, r = p / ACROSS;
            const int c = (int)(p % ACROSS * VEC) - (int)skip(r);
            const scalar_t* pack = from + r * cols + c;
            if (r >= high || c >= wide) continue;
            if (inner.value || (pack >= x && pack + VEC <= end)) {
                held[k] = *reinterpret_cast<const Bits*>(pack);
            } else {
                Pack some;
                for (int j = 0; j < VEC; ++j)
                    if (pack + j >= x && pack + j < end) some.at[j] = pack[j];
                held[k] = *reinterpret_cast<const Bits*>(&some);
            }
        }
#pragma unroll
        for (unsigned k = 0; k < ROUNDS; ++k) {
            const unsigned p = k * BLOCK + threadIdx.x, r = p / ACROSS;
            if (r < high) tile[place(r) + p % ACROSS] = held[k];
        }
    };
    if (row0 > 0 && row0 + HIGH < rows) load(Known<true>());  // packs of these rows are in x
    else load(Known<false>());
    __syncthreads();
    const scalar_t* lines = reinterpret_cast<const scalar_t*>(tile);
    const auto at = [&](unsigned r, unsigned c) { return lines[place(r) * VEC + skip(r) + c]; };
#pragma unroll
    for (unsigned i = threadIdx.x; i < PACKS; i += BLOCK) {
        const unsigned group = i / 32, c = group % (TILE / 8) * 8 + i % 32 / BESIDE;
        if ((int)c >= wide) continue;
        scalar_t* line = y + (col0 + c) * rows + row0;
        const unsigned before = (VEC - skipped(line)) % VEC;
        const unsigned pack = group / (TILE / 8) * BESIDE + i % BESIDE, r = pack * VEC + before;
        if (r + VEC <= high) {
            const auto word = [&](unsigned k) {
                constexpr int EACH = 4 / sizeof(scalar_t);
                Some<EACH> some;
#pragma unroll
                for (int j = 0; j < EACH; ++j) some.at[j] = at(r + k * EACH + j, c);
                return *reinterpret_cast<const unsigned*>(&some);
            };
            reinterpret_cast<Bits*>(line + before)[pack] = Bits{word(0), word(1), word(2), word(3)};
        } else {
            for (unsigned j = r; j < high; ++j) line[j] = at(j, c);
        }
        if (row0 == 0 && r == before)
            for (unsigned j = 0; j < min(before, high); ++j) line[j] = at(j, c);
    }
}

int launch_shifted(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    const int64_t down = (rows + SHIFTED_TALL - 1) / SHIFTED_TALL, across = (cols + TILE - 1) / TILE;
    transpose_shifted<<<(unsigned)(down * across), BLOCK, 0, stream>>>(x, y, rows, cols, (unsigned)down);
    return (int)cudaGetLastError();
}

// A matrix of a few rows, or of a few columns: `thin` lines of `length`. In memory one side's elements
// of a stretch of the length follow one another, the other side's lie in `thin` lines. A stretch is
// whole packs of the side where they follow; of a line they are packs of memory, with its edges.
// Bounded only by its threads, it is given too few registers.
template <bool COLUMNS>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void transpose_thin(const scalar_t* __restrict__ x,
                                                               scalar_t* __restrict__ y, int thin,
                                                               int64_t length, int stretch) {
    __shared__ __align__(16) scalar_t tile[THIN_TILE];
    const int64_t first = (int64_t)blockIdx.x * stretch;
    const int count = (int)min((int64_t)stretch, length - first), all = count * thin;
    const scalar_t* dense_from = x + first * thin;
    scalar_t* dense_to = y + first * thin;
    const int share = (stretch + 2 * VEC - 2) / VEC;  // packs of a line's stretch, at most
    // Lines side by side, not one after the other: their loads are on their way together.
    const auto each = [&](const scalar_t* lines, const auto& of_pack) {
#pragma unroll 2
        for (int i = threadIdx.x; i < thin * share; i += BLOCK) {
            const int line = i / share;
            const int64_t at = line * length + first;
            const int skip = (int)skipped(lines + at);
            of_pack(line, at, i % share * VEC - skip);
        }
    };
    const bool packed = (uintptr_t)(COLUMNS ? dense_from : dense_to) % 16 == 0;
    const int packs = packed ? all / VEC : 0;
    if (COLUMNS) {
        for (int i = threadIdx.x; i < packs; i += BLOCK)
            reinterpret_cast<Pack*>(tile)[i] = reinterpret_cast<const Pack*>(dense_from)[i];
        for (int i = packs * VEC + threadIdx.x; i < all; i += BLOCK) tile[i] = dense_from[i];
    } else {
        each(x, [&](int line, int64_t at, int from) {
            if (from >= 0 && from + VEC <= count) {
                const Pack values = *reinterpret_cast<const Pack*>(x + at + from);
#pragma unroll
                for (int j = 0; j < VEC; ++j) tile[(from + j) * thin + line] = values.at[j];
                return;
            }
            for (int j = max(from, 0); j < min(from + VEC, count); ++j)
                tile[j * thin + line] = x[at + j];
        });
    }
    __syncthreads();
    if (!COLUMNS) {
        for (int i = threadIdx.x; i < packs; i += BLOCK)
            reinterpret_cast<Pack*>(dense_to)[i] = reinterpret_cast<const Pack*>(tile)[i];
        for (int i = packs * VEC + threadIdx.x; i < all; i += BLOCK) dense_to[i] = tile[i];
    } else {
        each(y, [&](int line, int64_t at, int from) {
            if (from >= 0 && from + VEC <= count) {
                Pack values;
#pragma unroll
                for (int j = 0; j < VEC; ++j) values.at[j] = tile[(from + j) * thin + line];
                *reinterpret_cast<Pack*>(y + at + from) = values;
                return;
            }
            for (int j = max(from, 0); j < min(from + VEC, count); ++j)
                y[at + j] = tile[j * thin + line];
        });
    }
}

int launch_thin(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    const bool columns = cols < rows;
    const int64_t thin = columns ? cols : rows, length = columns ? rows : cols;
    const int64_t share = (length + FILL - 1) / FILL, most = THIN_TILE / thin / 32 * 32;
    const int64_t wanted = (share + 31) / 32 * 32;
    const int stretch = (int)(wanted < most ? wanted : most);
    const auto kernel = columns ? transpose_thin<true> : transpose_thin<false>;
    kernel<<<(unsigned)((length + stretch - 1) / stretch), BLOCK, 0, stream>>>(x, y, (int)thin, length,
                                                                               stretch);
    return (int)cudaGetLastError();
}

template <int V, int TALL, int AREA = TILE * TILE>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int WIDE = AREA / TALL;
    const int64_t across = (cols + WIDE - 1) / WIDE, down = (rows + TALL - 1) / TALL;
    transpose_kernel<V, TALL, AREA>
        <<<(unsigned)(across * down), BLOCK, 0, stream>>>(x, y, rows, cols, (unsigned)across);
    return (int)cudaGetLastError();
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int THIN = 8, LONG = TILE * TILE / THIN;
    if (rows <= THIN) return launch<V, THIN>(x, y, rows, cols, stream);
    if (cols <= THIN) return launch<V, LONG>(x, y, rows, cols, stream);
    if (rows <= TILE / 2) return launch<V, TILE / 2>(x, y, rows, cols, stream);
    if (cols <= TILE / 2) return launch<V, TILE * 2>(x, y, rows, cols, stream);
    // Of a small matrix, tiles of a quarter: more blocks.
    if (V == 1 && rows * cols <= SMALL) return launch<V, SIDE, SIDE * SIDE>(x, y, rows, cols, stream);
    return launch<V, TILE>(x, y, rows, cols, stream);
}

extern "C" int transpose(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                         cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const int64_t thin = rows < cols ? rows : cols;
    if (thin == 1) return copy(x, y, rows * cols, stream);
    if (thin <= FEW_LINES && rows * cols <= SMALL) return launch_thin(x, y, rows, cols, stream);
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    if (aligned && rows % VEC == 0 && cols % VEC == 0) return launch<VEC>(x, y, rows, cols, stream);
    if (thin <= THIN_MOST) return launch_thin(x, y, rows, cols, stream);
    if (rows * cols > SMALL) return launch_shifted(x, y, rows, cols, stream);
    return launch<1>(x, y, rows, cols, stream);
}
