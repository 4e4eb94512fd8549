// Matrix product, accumulated in float32. float32 inputs: register tiles of FMA in strict float32.
// float16 and bfloat16: tensor cores (mma.sync), fed by cp.async.
#define FEW_TILES 128  // knob: 64 128 256
#define STAGES 3  // knob: 2 3 4

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access
constexpr int THREADS = 256;

struct alignas(16) Pack {
    scalar_t at[VEC];
};

// A pack of row `row` of a matrix, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED>
__device__ __forceinline__ Pack load(const scalar_t* __restrict__ from, int64_t row, int64_t column,
                                     int64_t rows, int64_t columns) {
    Pack pack;
    const int64_t at = row * columns + column;
    if (ALIGNED && row < rows && column < columns)
        return reinterpret_cast<const Pack*>(from)[at / VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const bool inside = !ALIGNED && row < rows && column + j < columns;
        pack.at[j] = inside ? from[at + j] : scalar_t(0.0f);
    }
    return pack;
}

#ifdef PORTKERN_FLOAT32

// A block computes a square of 16 * T; each of its 16 x 16 threads T x T elements, in groups of 4
// rows and 4 columns that lie 64 apart. DEPTH makes the tiles of A and B one pack per thread each.
template <int T, bool ALIGNED>
__global__ __launch_bounds__(THREADS) void matmul_fma(const float* __restrict__ a,
                                                      const float* __restrict__ b,
                                                      float* __restrict__ c, int64_t m, int64_t n,
                                                      int64_t k, int64_t across) {
    constexpr int SIDE = 16 * T, DEPTH = 64 / T;
    __shared__ alignas(16) float tile_a[2][DEPTH][SIDE + 4];  // transposed: columns of A
    __shared__ alignas(16) float tile_b[2][DEPTH][SIDE];
    const int64_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    const int ty = threadIdx.x / 16 * 4, tx = threadIdx.x % 16 * 4;
    const int a_row = threadIdx.x / (DEPTH / 4), a_depth = threadIdx.x % (DEPTH / 4) * 4;
    const int b_depth = threadIdx.x / (SIDE / 4), b_column = threadIdx.x % (SIDE / 4) * 4;
    Pack next_a, next_b;
    const auto fetch = [&](int64_t depth) {
        next_a = load<ALIGNED>(a, row0 + a_row, depth + a_depth, m, k);
        next_b = load<ALIGNED>(b, depth + b_depth, column0 + b_column, k, n);
    };
    const auto stage = [&](int s) {
#pragma unroll
        for (int j = 0; j < 4; ++j) tile_a[s][a_depth + j][a_row] = next_a.at[j];
        *reinterpret_cast<Pack*>(&tile_b[s][b_depth][b_column]) = next_b;
    };
    float sums[T][T] = {};
    fetch(0);
    stage(0);
    __syncthreads();
    int turn = 0;
    for (int64_t depth = 0; depth < k; depth += DEPTH, turn ^= 1) {
        if (depth + DEPTH < k) fetch(depth + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float left[T], right[T];
#pragma unroll
            for (int g = 0; g < T; g += 4) {
                *reinterpret_cast<float4*>(left + g) =
                    *reinterpret_cast<const float4*>(&tile_a[turn][d][g * 16 + ty]);
                *reinterpret_cast<float4*>(right + g) =
                    *reinterpret_cast<const float4*>(&tile_b[turn][d][g * 16 + tx]);
            }
#pragma unroll
            for (int i = 0; i < T; ++i)
#pragma unroll
                for (int j = 0; j < T; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
        if (depth + DEPTH < k) stage(turn ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < T; ++i)
#pragma unroll
        for (int g = 0; g < T; g += 4) {
            const int64_t row = row0 + i / 4 * 64 + ty + i % 4, column = column0 + g * 16 + tx;
            if (row >= m) continue;
            if (ALIGNED) {
                const Pack pack = {sums[i][g], sums[i][g + 1], sums[i][g + 2], sums[i][g + 3]};
                if (column < n) reinterpret_cast<Pack*>(c)[(row * n + column) / VEC] = pack;
                continue;
            }
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (column + j < n) c[row * n + column + j] = sums[i][g + j];
        }
}

template <int T, bool ALIGNED>
int launch_tiles(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
                 cudaStream_t stream) {
    const int64_t across = (n + 16 * T - 1) / (16 * T), down = (m + 16 * T - 1) / (16 * T);
    if (T == 8 && across * down < FEW_TILES)  // too few blocks to fill a GPU: smaller ones
        return launch_tiles<4, ALIGNED>(a, b, c, m, n, k, stream);
    matmul_fma<T, ALIGNED><<<(unsigned)(across * down), THREADS, 0, stream>>>(a, b, c, m, n, k, across);
    return (int)cudaGetLastError();
}

template <bool ALIGNED>
int launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
    return launch_tiles<8, ALIGNED>(a, b, c, m, n, k, stream);
}

#else

#ifdef PORTKERN_FLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif

// A block computes 128 x 128, its 8 warps 64 x 32 each. Rows in shared memory are padded by 16
// bytes, so that the 8 rows an ldmatrix touches at once lie in different banks.
constexpr int SIDE = 128, DEPTH = 32, PITCH_A = DEPTH + 8, PITCH_B = SIDE + 8;
constexpr int STAGE = SIDE * PITCH_A + DEPTH * PITCH_B;  // elements
constexpr int SHARED_BYTES = STAGES * STAGE * sizeof(scalar_t);

__device__ __forceinline__ unsigned shared_address(const scalar_t* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

template <bool ALIGNED>
__device__ __forceinline__ void copy(scalar_t* to, const scalar_t* __restrict__ from, int64_t row,
                                     int64_t column, int64_t rows, int64_t columns) {
    if (!ALIGNED) {
        *reinterpret_cast<Pack*>(to) = load<false>(from, row, column, rows, columns);
        return;
    }
    const bool inside = row < rows && column < columns;
    const scalar_t* source = inside ? from + row * columns + column : from;
    // The last operand is the number of bytes read; what remains of the 16 is zeroed.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(source), "r"(inside ? 16 : 0) : "memory");
}

// A 16 x 16 piece of A: lane l points at row l % 16, half l / 16.
__device__ __forceinline__ void load_left(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(tile + lane % 16 * PITCH_A + lane / 16 * 8)) : "memory");
}

// A 16 x 16 piece of B, transposed on the way: r[0], r[1] are its left 8 columns.
__device__ __forceinline__ void load_right(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(tile + lane % 16 * PITCH_B + lane / 16 * 8)) : "memory");
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned* b) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two neighbours of a row; `column` is even.
template <bool ALIGNED>
__device__ __forceinline__ void store(scalar_t* __restrict__ c, float first, float second,
                                      int64_t row, int64_t column, int64_t m, int64_t n) {
    struct alignas(4) Pair {
        scalar_t at[2];
    };
    if (row >= m || column >= n) return;
    if (ALIGNED) {
        const Pair pair = {scalar_t(first), scalar_t(second)};
        reinterpret_cast<Pair*>(c)[(row * n + column) / 2] = pair;
        return;
    }
    c[row * n + column] = scalar_t(first);
    if (column + 1 < n) c[row * n + column + 1] = scalar_t(second);
}

template <bool ALIGNED>
__global__ __launch_bounds__(THREADS) void matmul_mma(const scalar_t* __restrict__ a,
                                                      const scalar_t* __restrict__ b,
                                                      scalar_t* __restrict__ c, int64_t m,
                                                      int64_t n, int64_t k, int64_t across) {
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
    const int64_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    const int steps = (int)((k + DEPTH - 1) / DEPTH);
    const auto fetch = [&](int step) {
        scalar_t* tile_a = tiles + step % STAGES * STAGE;
        scalar_t* tile_b = tile_a + SIDE * PITCH_A;
        const int64_t depth = (int64_t)step * DEPTH;
#pragma unroll
        for (int i = 0; step < steps && i < SIDE * DEPTH / 8 / THREADS; ++i) {
            const int p = i * THREADS + threadIdx.x;
            const int r = p / (DEPTH / 8), d = p % (DEPTH / 8) * 8;
            copy<ALIGNED>(tile_a + r * PITCH_A + d, a, row0 + r, depth + d, m, k);
            const int e = p / (SIDE / 8), q = p % (SIDE / 8) * 8;
            copy<ALIGNED>(tile_b + e * PITCH_B + q, b, depth + e, column0 + q, k, n);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    float sums[4][4][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + STAGES - 1);
        const scalar_t* tile_a = tiles + step % STAGES * STAGE + warp_row * PITCH_A;
        const scalar_t* tile_b = tiles + step % STAGES * STAGE + SIDE * PITCH_A + warp_column;
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16) {
            unsigned left[4][4], right[2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) load_left(left[i], tile_a + i * 16 * PITCH_A + d);
#pragma unroll
            for (int j = 0; j < 2; ++j) load_right(right[j], tile_b + d * PITCH_B + j * 16);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply(sums[i][j], left[i], right[j / 2] + j % 2 * 2);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = row0 + warp_row + i * 16 + lane / 4;
            const int64_t column = column0 + warp_column + j * 8 + lane % 4 * 2;
            store<ALIGNED>(c, sums[i][j][0], sums[i][j][1], row, column, m, n);
            store<ALIGNED>(c, sums[i][j][2], sums[i][j][3], row + 8, column, m, n);
        }
}

template <bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
    const int64_t across = (n + SIDE - 1) / SIDE, down = (m + SIDE - 1) / SIDE;
    const auto kernel = matmul_mma<ALIGNED>;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    kernel<<<(unsigned)(across * down), THREADS, SHARED_BYTES, stream>>>(a, b, c, m, n, k, across);
    return (int)cudaGetLastError();
}

#endif

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
    return aligned ? launch<true>(a, b, c, m, n, k, stream)
                   : launch<false>(a, b, c, m, n, k, stream);
}
