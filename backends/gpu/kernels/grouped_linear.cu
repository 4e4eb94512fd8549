// Products of experts, in tiles as those of linear.h: a block finds the expert whose rows its tile has by counting
// the tiles of those before. Tiles are small where an expert has few rows, as in decoding.
#define FEW_TILES 256  // knob: 64 128 256 512
#define FEW_ROWS 96  // knob: 48 96 192
#include <portkern/linear.h>

struct Groups {
    const scalar_t *x, *weight;
    const int32_t* ends;
    scalar_t* y;
    int64_t rows, n, k, experts;
};

// A tile's first row, and the rows from `start` to `end` of its expert; nobody's have the number of experts.
struct Place {
    int64_t expert, start, end, row0;
};

// Over all lanes of a warp up to and with this one.
template <class Combine>
__device__ __forceinline__ int running(int value, Combine combine) {
    for (int d = 1; d < WARP_SIZE; d *= 2) {
        const int other = warp_shuffle_up(value, d);
        if (threadIdx.x % WARP_SIZE >= d) value = combine(value, other);
    }
    return value;
}

// Each warp finds it for itself: a lane counts the tiles of one expert.
template <int SIDE>
__device__ __forceinline__ Place place_of(const Groups& all, int64_t tile) {
    const int lane = threadIdx.x % WARP_SIZE;
    int before = 0, tiles = 0;
    for (int64_t first = 0; first < all.experts; first += WARP_SIZE) {
        const int given = first + lane < all.experts ? all.ends[first + lane] : 0;
        const int end = running(max(min(given, (int)all.rows), before), [](int a, int b) { return max(a, b); });
        const int ahead = warp_shuffle_up(end, 1), start = lane > 0 ? ahead : before;
        const int own = (end - start + SIDE - 1) / SIDE, sum = running(own, [](int a, int b) { return a + b; });
        const warp_mask_t reached = warp_ballot(tiles + sum > tile);
        if (reached) {
            const int at = warp_first(reached), skipped = tiles + warp_shuffle(sum - own, at);
            return {first + at, warp_shuffle(start, at), warp_shuffle(end, at), (tile - skipped) * SIDE};
        }
        before = warp_shuffle(end, WARP_SIZE - 1), tiles += warp_shuffle(sum, WARP_SIZE - 1);
    }
    return {all.experts, before, all.rows, (tile - tiles) * SIDE};
}

template <int T, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(layer::THREADS, layer::SMALL_TYPE && ALIGNED ? 2 : 0) void grouped_tiles(
    const Groups all, int64_t across) {
    constexpr int SIDE = 16 * T;
    const int64_t column0 = blockIdx.x % across * SIDE;
    const Place at = place_of<SIDE>(all, blockIdx.x / across);
    const int64_t rows = at.end - at.start;
    if (at.row0 >= rows) return;
    scalar_t* y = all.y + at.start * all.n;
    if (at.expert < all.experts) {
        const Matrix<> x = {all.x + at.start * all.k, rows, all.k};
        const Matrix<> weight = {all.weight + at.expert * all.n * all.k, all.n, all.k};
        layer::multiply<T, ALIGNED>(x, weight, nullptr, Output{y, nullptr, 0}, at.row0, column0, 0, all.k);
        return;
    }
    for (int i = threadIdx.x; i < SIDE * SIDE; i += layer::THREADS) {
        const int64_t row = at.row0 + i / SIDE, column = column0 + i % SIDE;
        if (row < rows && column < all.n) y[row * all.n + column] = scalar_t(0.0f);
    }
}

// Of tiles there are no more than whole ones of all rows, and one that is not whole of each expert and of nobody.
template <int T, bool ALIGNED>
int launch(const Groups& all, cudaStream_t stream) {
    constexpr int SIDE = 16 * T;
    const auto kernel = grouped_tiles<T, ALIGNED>;
#ifdef TENSOR_CORES  // so much shared memory has to be asked for on NVIDIA
    constexpr int BYTES = matrix_unit::Pipeline<SIDE, true>::bytes;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
#else
    constexpr int BYTES = 0;
#endif
    const int64_t across = (all.n + SIDE - 1) / SIDE, odd = all.experts < all.rows ? all.experts + 1 : all.rows;
    const int64_t blocks = (all.rows / SIDE + odd) * across;
    kernel<<<(unsigned)blocks, layer::THREADS, BYTES, stream>>>(all, across);
    return (int)cudaGetLastError();
}

template <bool ALIGNED>
int launch_tiles(const Groups& all, cudaStream_t stream) {
    if constexpr (layer::UNITS || !layer::SMALL_TYPE)  // else the host does not know what a block computes
        if (all.rows <= FEW_ROWS * all.experts || all.n <= 64) return launch<4, ALIGNED>(all, stream);
    return launch<8, ALIGNED>(all, stream);
}

extern "C" int grouped_linear(const scalar_t* x, const scalar_t* weight, const int32_t* ends, scalar_t* y,
                              int64_t rows, int64_t n, int64_t k, int64_t experts, cudaStream_t stream) {
    if (rows == 0 || n == 0) return 0;
    const Groups all = {x, weight, ends, y, rows, n, k, experts};
    const bool aligned = are_whole((uintptr_t)x | (uintptr_t)weight, k) && (uintptr_t)y % 16 == 0;
    return aligned ? launch_tiles<true>(all, stream) : launch_tiles<false>(all, stream);
}
