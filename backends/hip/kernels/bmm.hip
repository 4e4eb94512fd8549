// Matrix products of a batch, accumulated in float32: a block computes a square of one product,
// each quarter of its threads a quarter of that, by FMA or, for halves on CDNA and NVIDIA, on matrix
// units. Too few tiles to fill a GPU: several blocks share a tile's depth.
#define FEW_TILES 256  // knob: 64 128 256 512
#include <portkern/thin_product.h>
#include <portkern/unit_product.h>

constexpr int THREADS = 256, DEPTH = 4 * VEC;
// Of a block's depth, where several share a tile: FMAs take longer than adding the parts.
constexpr int LEAST_DEPTH = sizeof(scalar_t) == 4 ? 128 : 512;

#ifdef TENSOR_CORES
constexpr int FILLING = FEW_TILES / 2;  // tiles
#else
constexpr int FILLING = FEW_TILES;

#ifdef MATRIX_UNIT
// One wave's SIDE x SIDE. Both tiles lie with the depth inside, padded by 16 bytes against bank conflicts.
template <int SIDE>
struct Product : matrix_unit::Quarter<SIDE, SIDE> {
    static constexpr int pitch = DEPTH + 8, a = 2 * SIDE * pitch, b = a;
    typedef scalar_t Staged;

    static __device__ void stage_a(Staged* tile, int row, int depth, const Pack& pack) {
        *reinterpret_cast<Pack*>(tile + row * pitch + depth) = pack;
    }
    static __device__ void stage_b(Staged* tile, int depth, int column, const Pack& pack) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile[(column + j) * pitch + depth] = pack.at[j];
    }
    // Pack p of B: neighbouring lanes write neighbouring depths, which lie in different banks.
    static __device__ int b_depth(int p) { return p % DEPTH; }
    static __device__ int b_column(int p) { return p / DEPTH * VEC; }
    __device__ void add(const Staged* tile_a, const Staged* tile_b, int row, int column) {
        matrix_unit::Quarter<SIDE, SIDE>::template add<DEPTH, pitch, pitch>(tile_a + row * pitch,
                                                                            tile_b + column * pitch);
    }
};

#else

// The SIDE x SIDE of 8 x 8 threads: each has N x N elements, in groups of 4 rows and 4 columns that
// lie 32 apart. Both tiles lie with the depth outside.
template <int SIDE>
struct Product {
    static constexpr int N = SIDE / 8, pitch_a = 2 * SIDE + 4, pitch_b = 2 * SIDE;
    static constexpr int a = DEPTH * pitch_a, b = DEPTH * pitch_b;
    typedef float Staged;
    float sums[N][N] = {};

    static __device__ void stage_a(Staged* tile, int row, int depth, const Pack& pack) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile[(depth + j) * pitch_a + row] = float(pack.at[j]);
    }
    static __device__ void stage_b(Staged* tile, int depth, int column, const Pack& pack) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile[depth * pitch_b + column + j] = float(pack.at[j]);
    }
    static __device__ int b_depth(int p) { return p * VEC / (2 * SIDE); }
    static __device__ int b_column(int p) { return p * VEC % (2 * SIDE); }
    __device__ void add(const Staged* tile_a, const Staged* tile_b, int at_row, int at_column) {
#pragma unroll 2  // all of them at once would take twice the registers
        for (int d = 0; d < DEPTH; ++d) {
            float left[N], right[N];
#pragma unroll
            for (int i = 0; i < N; ++i) {
                left[i] = tile_a[d * pitch_a + at_row + row(i * N)];
                right[i] = tile_b[d * pitch_b + at_column + column(i)];
            }
#pragma unroll
            for (int i = 0; i < N; ++i)
#pragma unroll
                for (int j = 0; j < N; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }
    // Element e of this thread: its value, row and column.
    __device__ float value(int e) const { return sums[e / N][e % N]; }
    __device__ int row(int e) const {
        return e / N / 4 * 32 + threadIdx.x % 64 / 8 * 4 + e / N % 4;
    }
    __device__ int column(int e) const { return e % N / 4 * 32 + threadIdx.x % 8 * 4 + e % 4; }
};

#endif
#endif

template <int SIDE, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, sizeof(scalar_t) == 2 ? 2 : 0) void bmm_kernel(
    const scalar_t* __restrict__ every_a, const scalar_t* __restrict__ every_b,
    const Output every_c, int64_t m, int64_t n, int64_t k, int64_t across, int64_t down, int64_t tiles,
    int64_t each) {
    const int64_t tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const int64_t from = split * each, to = k - from < each ? k : from + each;
    const int64_t batch = tile / across / down;
    const int64_t row0 = tile / across % down * SIDE, column0 = tile % across * SIDE;
    const Matrix<> a = {every_a + batch * m * k, m, k}, b = {every_b + batch * k * n, k, n};
    const Output c = every_c.from(split, batch * m * n);
#ifdef TENSOR_CORES
    matrix_unit::Pipeline<SIDE>::template multiply<ALIGNED>(a, b, c, row0, column0, from, to);
#else
    using Quarter = Product<SIDE / 2>;
    constexpr int SHARE = SIDE * DEPTH / VEC / THREADS;  // packs of each matrix per thread and step
    __shared__ alignas(16) typename Quarter::Staged tile_a[Quarter::a], tile_b[Quarter::b];
    const int t = threadIdx.x, at_row = t / 128 * (SIDE / 2), at_column = t / 64 % 2 * (SIDE / 2);
    Pack next_a[SHARE], next_b[SHARE];
    const auto fetch = [&](int64_t depth) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            next_a[i] = load<ALIGNED>(a, row0 + p / 4, depth + p % 4 * VEC);
            const int d = Quarter::b_depth(p), q = Quarter::b_column(p);
            next_b[i] = load<ALIGNED>(b, depth + d, column0 + q);
        }
    };
    Quarter product;
    fetch(from);
    for (int64_t depth = from; depth < to; depth += DEPTH) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            Quarter::stage_a(tile_a, p / 4, p % 4 * VEC, next_a[i]);
            Quarter::stage_b(tile_b, Quarter::b_depth(p), Quarter::b_column(p), next_b[i]);
        }
        __syncthreads();
        if (depth + DEPTH < to) fetch(depth + DEPTH);
        product.add(tile_a, tile_b, at_row, at_column);
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < SIDE * SIDE / THREADS; ++e) {
        const int64_t row = row0 + at_row + product.row(e);
        const int64_t column = column0 + at_column + product.column(e);
        if (row < m && column < n) c.store(row * n + column, product.value(e));
    }
#endif
}

template <int SIDE, bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
           int64_t k, hipStream_t stream) {
    const int64_t across = (n + SIDE - 1) / SIDE, down = (m + SIDE - 1) / SIDE;
    const int64_t blocks = batch * across * down;
    if constexpr (SIDE == 128)  // small products, or too few blocks to fill a GPU: smaller tiles
        if (blocks < FILLING || m <= 64 || n <= 64)
            return launch<64, ALIGNED>(a, b, c, batch, m, n, k, stream);
    const auto kernel = bmm_kernel<SIDE, ALIGNED>;
#ifdef TENSOR_CORES  // so much shared memory has to be asked for on NVIDIA
    constexpr int BYTES = matrix_unit::Pipeline<SIDE>::bytes;
    hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, BYTES);
#else
    constexpr int BYTES = 0;
#endif
    const Depths depths(blocks, k, DEPTH, 2 * FILLING, LEAST_DEPTH);
    return share_depth(depths.splits, c, batch * m * n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(blocks * depths.splits), THREADS, BYTES, stream>>>(
            a, b, to, m, n, k, across, down, blocks, depths.each);
    });
}

extern "C" int bmm(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m,
                   int64_t n, int64_t k, hipStream_t stream) {
    if (batch == 0 || m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, batch, m, n, k}, stream);
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
    return aligned ? launch<128, true>(a, b, c, batch, m, n, k, stream)
                   : launch<128, false>(a, b, c, batch, m, n, k, stream);
}
