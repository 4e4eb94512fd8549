// Transpose through a padded tile in shared memory: 16-byte accesses on both sides. Of a thin matrix
// the tile is as thin, and so much longer; where it has no packs or is small, all lines of a stretch
// are a tile. A vector is copied. Tiles that are whole have no conditions: loads wait behind them.
#include <portkern/copy.h>

#define BLOCK 256  // knob: 128 256 512
#define TILE 64  // knob: 32 64

constexpr int THIN_TILE = 6144, THIN_MOST = 31;  // elements of a thin tile, and lines
constexpr int FILL = 256;  // blocks that a GPU is to have, if that leaves a warp's share to each
constexpr int FEW_LINES = 4, SMALL = 1 << 20;  // a tile of packs would be nearly empty

template <bool B>
struct Known {
    static constexpr bool value = B;
};

// `tiles`: how many there are across. Without packs the next tile is the one below, whose part of a
// line of y begins in the 32 bytes where this one's ends: both are written to memory at once.
template <int V, int TALL>
__global__ __launch_bounds__(BLOCK) void transpose_kernel(const scalar_t* __restrict__ x,
                                                          scalar_t* __restrict__ y, int64_t rows,
                                                          int64_t cols, int64_t tiles) {
    constexpr int WIDE = TILE * TILE / TALL, PACKS = TILE * TILE / V;
    constexpr int ROUNDS = (PACKS + BLOCK - 1) / BLOCK, ACROSS = WIDE / V, DOWN = TALL / V;
    // Padded by 4 bytes, so that a column's elements lie in different banks.
    __shared__ scalar_t tile[TALL][WIDE + 4 / sizeof(scalar_t)];
    const int64_t below = (rows + TALL - 1) / TALL;
    const int64_t row0 = (V > 1 ? blockIdx.x / tiles : blockIdx.x % below) * TALL;
    const int64_t col0 = (V > 1 ? blockIdx.x % tiles : blockIdx.x / below) * WIDE;
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

// A matrix of a few rows, or of a few columns: `thin` lines of `length`. In memory one side's elements
// of a stretch of the length follow one another, the other side's lie in `thin` lines.
template <bool COLUMNS>
__global__ __launch_bounds__(BLOCK) void transpose_thin(const scalar_t* __restrict__ x,
                                                        scalar_t* __restrict__ y, int thin,
                                                        int64_t length, int stretch) {
    __shared__ scalar_t tile[THIN_TILE];
    const int64_t first = (int64_t)blockIdx.x * stretch;
    const int count = (int)min((int64_t)stretch, length - first);
    const scalar_t* dense_from = x + first * thin;
    scalar_t* dense_to = y + first * thin;
    // Lines side by side, not one after the other: their loads are on their way together.
    const auto each = [&](const auto& of_line) {
#pragma unroll 4
        for (int i = threadIdx.x; i < thin * stretch; i += BLOCK)
            if (i % stretch < count) of_line(i / stretch, i % stretch);
    };
    if (COLUMNS)
        for (int i = threadIdx.x; i < count * thin; i += BLOCK) tile[i] = dense_from[i];
    else
        each([&](int line, int i) { tile[i * thin + line] = x[line * length + first + i]; });
    __syncthreads();
    if (!COLUMNS)
        for (int i = threadIdx.x; i < count * thin; i += BLOCK) dense_to[i] = tile[i];
    else
        each([&](int line, int i) { y[line * length + first + i] = tile[i * thin + line]; });
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

template <int V, int TALL>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int WIDE = TILE * TILE / TALL;
    const int64_t across = (cols + WIDE - 1) / WIDE, down = (rows + TALL - 1) / TALL;
    transpose_kernel<V, TALL>
        <<<(unsigned)(across * down), BLOCK, 0, stream>>>(x, y, rows, cols, across);
    return (int)cudaGetLastError();
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int THIN = 8, LONG = TILE * TILE / THIN;
    if (rows <= THIN) return launch<V, THIN>(x, y, rows, cols, stream);
    if (cols <= THIN) return launch<V, LONG>(x, y, rows, cols, stream);
    if (rows <= TILE / 2) return launch<V, TILE / 2>(x, y, rows, cols, stream);
    if (cols <= TILE / 2) return launch<V, TILE * 2>(x, y, rows, cols, stream);
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
    return launch<1>(x, y, rows, cols, stream);
}
