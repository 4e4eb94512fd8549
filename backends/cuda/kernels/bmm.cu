// Matrix products of a batch: tiles of A and B come into shared memory by cp.async, and warps
// multiply them, by FMA in strict float32 or, for halves, on tensor cores (mma.sync); on Hopper wgmma,
// fed by the bulk tensor copy engine, for halves whose rows are whole packs. Too few tiles to fill a GPU:
// several blocks share a tile's depth.
#define FEW_TILES 128  // knob: 64 128 256
#define STAGES 3  // knob: 2 3 4
#define BAND 8  // knob: 4 8 16 32
#define WIDE_FROM 96  // knob: 48 96 192
#define PIPELINE 4  // knob: 2 3 4
#include <portkern/thin_product.h>
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
#include <portkern/tile_product.h>
#include <portkern/wide_product.h>
#endif

// Of a block's depth, where several share a tile: of float32 so little, because FMAs take longer than
// adding the parts.
constexpr int LEAST_DEPTH = sizeof(scalar_t) == 4 ? 64 : 512;
constexpr int DEPTH = 4 * VEC;        // rows of B in shared memory, columns of A
constexpr int PITCH_A = DEPTH + VEC;  // 8 neighbouring rows lie in different banks

// A block computes SIDE x SIDE, a warp 32 x SIDE / 2 of it.
template <int SIDE>
struct Tile {
    static constexpr int threads = 2 * SIDE, pitch_b = SIDE + VEC;
    static constexpr int stage = SIDE * PITCH_A + DEPTH * pitch_b;  // elements
    static constexpr int bytes = STAGES * stage * sizeof(scalar_t);
};

struct Matrix {
    const scalar_t* at;
    int64_t rows, columns;
};

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// 16 bytes of one row, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED>
__device__ __forceinline__ void copy(scalar_t* to, const Matrix& from, int64_t row,
                                     int64_t column) {
    const int64_t at = row * from.columns + column;
    if constexpr (ALIGNED) {
        const bool inside = row < from.rows && column < from.columns;
        // The last operand is the number of bytes read; what remains of the 16 is zeroed.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                     "l"(inside ? from.at + at : from.at), "r"(inside ? 16 : 0) : "memory");
    } else {
#pragma unroll 4
        for (int j = 0; j < VEC; ++j)
            to[j] = row < from.rows && column + j < from.columns ? from.at[at + j] : scalar_t(0.0f);
    }
}

// A lane has 4 rows that lie 8 apart, lane / 4 the first, and COLUMNS columns in groups: lane % 4
// is the first group, the others lie 4 groups apart. This is how mma.sync gives its results.
#ifdef PORTKERN_FLOAT32
constexpr int GROUP = 4;

template <int COLUMNS, int PITCH_B>
__device__ __forceinline__ void multiply(float (&sums)[4][COLUMNS], const float* a,
                                         const float* b) {
    a += threadIdx.x % 32 / 4 * PITCH_A;
    b += threadIdx.x % 4 * GROUP;
#pragma unroll 1  // more at once would take more registers
    for (int d = 0; d < DEPTH; d += 2) {
        alignas(16) float left[4][2], right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            *(float2*)left[i] = *(const float2*)(a + i * 8 * PITCH_A + d);
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 4) {
                *(float4*)right = *(const float4*)(b + (d + e) * PITCH_B + j * 4);
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int q = 0; q < 4; ++q)
                        sums[i][j + q] = fmaf(left[i][e], right[q], sums[i][j + q]);
            }
    }
}
#else
constexpr int GROUP = 2;
#ifdef PORTKERN_FLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif

// Four pieces of 8 x 8, of whose rows each lane points at one.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_pieces(unsigned (&r)[4], const scalar_t* row) {
    const unsigned at = shared_address(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

template <int COLUMNS, int PITCH_B>
__device__ __forceinline__ void multiply(float (&sums)[4][COLUMNS], const scalar_t* a,
                                         const scalar_t* b) {
    a += threadIdx.x % 16 * PITCH_A + threadIdx.x % 32 / 16 * 8;
    b += threadIdx.x % 16 * PITCH_B + threadIdx.x % 32 / 16 * 8;
#pragma unroll
    for (int d = 0; d < DEPTH; d += 16) {
        unsigned left[2][4], right[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) load_pieces<false>(left[i], a + i * 16 * PITCH_A + d);
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j % 4 == 0) load_pieces<true>(right, b + d * PITCH_B + j * 4);
            const unsigned* r = right + j % 4;
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const unsigned* l = left[i / 2];
                float *upper = sums[i] + j, *lower = sums[i + 1] + j;
                asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                             : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(r[0]), "r"(r[1]));
            }
        }
    }
}
#endif

template <int SIDE, bool ALIGNED>
__global__ __launch_bounds__(Tile<SIDE>::threads, 2) void bmm_kernel(
    const scalar_t* __restrict__ every_a, const scalar_t* __restrict__ every_b,
    const Output every_c, int64_t m, int64_t n, int64_t k, int64_t across, int64_t down, int64_t count,
    int64_t each) {
    constexpr int PITCH_B = Tile<SIDE>::pitch_b, COLUMNS = SIDE / 8;
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
    const int64_t number = blockIdx.x % count, split = blockIdx.x / count;
    const int64_t batch = number / across / down;
    const int64_t row0 = number / across % down * SIDE, column0 = number % across * SIDE;
    const Matrix a = {every_a + batch * m * k, m, k}, b = {every_b + batch * k * n, k, n};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 2 * 32, warp_column = warp % 2 * (SIDE / 2);
    const int first = (int)(split * each / DEPTH);
    const int end = (int)((min(k, (split + 1) * each) + DEPTH - 1) / DEPTH);
    const auto fetch = [&](int step) {
        scalar_t* tile = tiles + step % STAGES * Tile<SIDE>::stage;
        const int64_t depth = (int64_t)step * DEPTH;
#pragma unroll 1
        for (int i = 0; step < end && i < 2; ++i) {
            const int p = i * Tile<SIDE>::threads + threadIdx.x;
            const int r = p / 4, d = p % 4 * VEC, e = p * VEC / SIDE, q = p * VEC % SIDE;
            copy<ALIGNED>(tile + r * PITCH_A + d, a, row0 + r, depth + d);
            copy<ALIGNED>(tile + SIDE * PITCH_A + e * PITCH_B + q, b, depth + e, column0 + q);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    float sums[4][COLUMNS] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(first + s);
    for (int step = first; step < end; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + STAGES - 1);
        const scalar_t* tile = tiles + step % STAGES * Tile<SIDE>::stage;
        multiply<COLUMNS, PITCH_B>(sums, tile + warp_row * PITCH_A,
                                      tile + SIDE * PITCH_A + warp_column);
    }
    const Output c = every_c.from(split, batch * m * n);
    struct alignas(GROUP * sizeof(scalar_t)) Group {
        scalar_t at[GROUP];
    };
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; j += GROUP) {
            const int64_t row = row0 + warp_row + i * 8 + lane / 4;
            const int64_t column = column0 + warp_column + j * 4 + lane % 4 * GROUP;
            if (row >= m || column >= n) continue;
            Group group;
#pragma unroll
            for (int e = 0; e < GROUP; ++e) group.at[e] = scalar_t(sums[i][j + e]);
            if (ALIGNED && !c.parts) {
                *reinterpret_cast<Group*>(c.whole + row * n + column) = group;
                continue;
            }
#pragma unroll
            for (int e = 0; e < GROUP; ++e)
                if (column + e < n) c.store(row * n + column + e, sums[i][j + e]);
        }
}

template <int SIDE, bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
           int64_t k, cudaStream_t stream) {
    const int64_t across = (n + SIDE - 1) / SIDE, down = (m + SIDE - 1) / SIDE;
    const int64_t blocks = batch * across * down;
    if constexpr (SIDE == 128)  // small products, or too few blocks to fill a GPU: smaller tiles
        if (blocks < FEW_TILES || m <= 64 || n <= 64)
            return launch<64, ALIGNED>(a, b, c, batch, m, n, k, stream);
    using T = Tile<SIDE>;
    const auto kernel = bmm_kernel<SIDE, ALIGNED>;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::bytes);
    const Depths depths(blocks, k, DEPTH, 2 * FEW_TILES, LEAST_DEPTH);
    return share_depth(depths.splits, c, batch * m * n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(blocks * depths.splits), T::threads, T::bytes, stream>>>(
            a, b, to, m, n, k, across, down, blocks, depths.each);
    });
}

extern "C" int bmm(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m,
                   int64_t n, int64_t k, cudaStream_t stream) {
    if (batch == 0 || m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, batch, m, n, k}, stream);
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
    if (aligned && batch * m * n >= (int64_t)WIDE_FROM * 128 * 128 && n > 128 && wide::suits(batch, m, n, k))
        return wide::launch(a, b, c, batch, m, n, k, stream);
    const tile::Product all = {batch, m, n, k};
    if (aligned && tile::suits(all)) return tile::launch(a, b, c, all, stream);
#endif
    return aligned ? launch<128, true>(a, b, c, batch, m, n, k, stream)
                   : launch<128, false>(a, b, c, batch, m, n, k, stream);
}
