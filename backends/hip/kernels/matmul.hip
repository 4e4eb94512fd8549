// Matrix product, accumulated in float32: register tiles of FMA, which every target has, and for
// float16 and bfloat16 the matrix units of CDNA and NVIDIA. Too few tiles to fill a GPU: several blocks
// share a tile's depth.
#define FEW_TILES 256  // knob: 64 128 256 512
#include <portkern/thin_product.h>
#include <portkern/unit_product.h>

constexpr int THREADS = 256;
constexpr bool SMALL_TYPE = sizeof(scalar_t) == 2;
// Of a block's depth, where several share a tile: its least, since FMAs take longer than adding the parts,
// and what it is a multiple of.
constexpr int LEAST_DEPTH = SMALL_TYPE ? 512 : 128, STEP = 32;

#ifdef TENSOR_CORES
constexpr int FILLING = FEW_TILES / 2;  // tiles
constexpr bool SMALLER = true;          // whether few tiles may be smaller ones
#else
constexpr int FILLING = FEW_TILES;
constexpr bool SMALLER = !SMALL_TYPE;
#endif

#ifndef MATRIX_UNIT
// A block computes a square of 16 * T; each of its 16 x 16 threads T x T elements, in groups of 4
// rows and 4 columns that lie 64 apart. DEPTH makes the tiles of A and B 1024 elements each.
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& a, const Matrix<>& b, const Output& c, int64_t row0,
                         int64_t column0, int64_t from, int64_t to) {
    constexpr int SIDE = 16 * T, DEPTH = 64 / T;
    __shared__ alignas(16) float tile_a[2][DEPTH][SIDE + 4];  // transposed: columns of A
    __shared__ alignas(16) float tile_b[2][DEPTH][SIDE];
    const int t = threadIdx.x, ty = t / 16 * 4, tx = t % 16 * 4;
    const int a_row = t / (DEPTH / VEC), a_depth = t % (DEPTH / VEC) * VEC;
    const int b_depth = t / (SIDE / VEC), b_column = t % (SIDE / VEC) * VEC;
    const bool loads = t < SIDE * DEPTH / VEC;  // two bytes per element keep half the threads busy
    Pack next_a, next_b;
    const auto fetch = [&](int64_t depth) {
        if (!loads) return;
        next_a = load<ALIGNED>(a, row0 + a_row, depth + a_depth);
        next_b = load<ALIGNED>(b, depth + b_depth, column0 + b_column);
    };
    const auto stage = [&](int s) {
        if (!loads) return;
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile_a[s][a_depth + j][a_row] = float(next_a.at[j]);
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile_b[s][b_depth][b_column + j] = float(next_b.at[j]);
    };
    float sums[T][T] = {};
    fetch(from);
    stage(0);
    __syncthreads();
    int turn = 0;
    for (int64_t depth = from; depth < to; depth += DEPTH, turn ^= 1) {
        if (depth + DEPTH < to) fetch(depth + DEPTH);
#pragma unroll 2  // all of them at once would take twice the registers
        for (int d = 0; d < DEPTH; ++d) {
            float left[T], right[T];
#pragma unroll
            for (int i = 0; i < T; ++i) {
                left[i] = tile_a[turn][d][i / 4 * 64 + ty + i % 4];
                right[i] = tile_b[turn][d][i / 4 * 64 + tx + i % 4];
            }
#pragma unroll
            for (int i = 0; i < T; ++i)
#pragma unroll
                for (int j = 0; j < T; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
        if (depth + DEPTH < to) stage(turn ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < T; ++i)
#pragma unroll
        for (int j = 0; j < T; ++j) {
            const int64_t row = row0 + i / 4 * 64 + ty + i % 4;
            const int64_t column = column0 + j / 4 * 64 + tx + j % 4;
            if (row < a.rows && column < b.columns) c.store(row * b.columns + column, sums[i][j]);
        }
}

#elif defined(TENSOR_CORES)
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& a, const Matrix<>& b, const Output& c, int64_t row0,
                         int64_t column0, int64_t from, int64_t to) {
    matrix_unit::Pipeline<16 * T>::template multiply<ALIGNED>(a, b, c, row0, column0, from, to);
}

#else
// A block computes 128 x 128, its 4 waves 64 x 64 each. Both tiles lie with the depth inside, padded by 16
// bytes against bank conflicts.
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& a, const Matrix<>& b, const Output& c, int64_t row0,
                         int64_t column0, int64_t from, int64_t to) {
    constexpr int SIDE = 16 * T, DEPTH = 32, PITCH = DEPTH + 8, SHARE = SIDE * DEPTH / 8 / THREADS;
    static_assert(SIDE == 128, "Packs of B are told by their place in rows of 128");
    __shared__ alignas(16) scalar_t tile_a[SIDE * PITCH];
    __shared__ alignas(16) scalar_t tile_b[SIDE * PITCH];
    const int t = threadIdx.x, wave_row = t / 128 * 64, wave_column = t / 64 % 2 * 64;
    Pack next_a[SHARE], next_b[SHARE];
    const auto fetch = [&](int64_t depth) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            next_a[i] = load<ALIGNED>(a, row0 + p / 4, depth + p % 4 * 8);
            next_b[i] = load<ALIGNED>(b, depth + p / 16, column0 + p % 16 * 8);
        }
    };
    const auto stage = [&] {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            *reinterpret_cast<Pack*>(&tile_a[p / 4 * PITCH + p % 4 * 8]) = next_a[i];
#pragma unroll
            for (int j = 0; j < 8; ++j) tile_b[(p % 16 * 8 + j) * PITCH + p / 16] = next_b[i].at[j];
        }
    };
    matrix_unit::Quarter<64, 64> product;
    fetch(from);
    for (int64_t depth = from; depth < to; depth += DEPTH) {
        stage();
        __syncthreads();
        if (depth + DEPTH < to) fetch(depth + DEPTH);
        product.template add<DEPTH, PITCH, PITCH>(tile_a + wave_row * PITCH, tile_b + wave_column * PITCH);
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < product.COUNT; ++e) {
        const int64_t row = row0 + wave_row + product.row(e);
        const int64_t column = column0 + wave_column + product.column(e);
        if (row < a.rows && column < b.columns) c.store(row * b.columns + column, product.value(e));
    }
}
#endif

template <int T, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, SMALL_TYPE ? 2 : 0) void matmul_kernel(
    const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, const Output all, int64_t m, int64_t n,
    int64_t k, int64_t across, int64_t tiles, int64_t each) {
    const int64_t tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const int64_t row0 = tile / across * (16 * T), column0 = tile % across * (16 * T);
    const int64_t from = split * each, to = k - from < each ? k : from + each;
    const Output c = all.from(split, 0);
    multiply<T, ALIGNED>({a, m, k}, {b, k, n}, c, row0, column0, from, to);
}

template <int T, bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
           hipStream_t stream) {
    const int64_t across = (n + 16 * T - 1) / (16 * T), down = (m + 16 * T - 1) / (16 * T);
    if constexpr (T == 8 && SMALLER)
        // Small products, or too few blocks to fill a GPU: smaller ones.
        if (across * down < FILLING || (SMALL_TYPE && (m <= 64 || n <= 64)))
            return launch<4, ALIGNED>(a, b, c, m, n, k, stream);
    const auto kernel = matmul_kernel<T, ALIGNED>;
#ifdef TENSOR_CORES  // so much shared memory has to be asked for on NVIDIA
    constexpr int BYTES = matrix_unit::Pipeline<16 * T>::bytes;
    hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, BYTES);
#else
    constexpr int BYTES = 0;
#endif
    const Depths depths(across * down, k, STEP, 2 * FILLING, LEAST_DEPTH);
    return share_depth(depths.splits, c, m * n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(across * down * depths.splits), THREADS, BYTES, stream>>>(
            a, b, to, m, n, k, across, across * down, depths.each);
    });
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, hipStream_t stream) {
    if (m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, 1, m, n, k}, stream);
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
    return aligned ? launch<8, true>(a, b, c, m, n, k, stream)
                   : launch<8, false>(a, b, c, m, n, k, stream);
}
