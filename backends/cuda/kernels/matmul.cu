// Matrix product, accumulated in float32. float32 inputs: register tiles of FMA in strict float32,
// or on Hopper three products of halves that keep its precision. float16 and bfloat16: tensor cores
// (mma.sync), fed by cp.async; on Hopper wgmma, fed by the bulk tensor copy engine. Too few tiles to
// fill a GPU: several blocks share a tile's depth. Rows that are no whole packs: the operands are
// copied with rows that are, where the product costs more than that. Thin ones: thin_product.h. Tiles of
// 16 bits are small where large ones would be few, or mostly beyond the last row or column.
#define FEW_TILES 128  // knob: 64 128 256
#define STAGES 3  // knob: 2 3 4
#define BAND 8  // knob: 4 8 16 32
#define WIDE_FROM 48  // knob: 32 48 64 128
#define PIPELINE 4  // knob: 2 3 4
#define SPLIT_FROM 500  // knob: 100 500 2000
#define PAD_FROM 64  // knob: 16 64 256
#define HALVE_FROM 50  // knob: 50 100 200 400
#define PAD_DENSE 200  // knob: 100 200 400
#define SMALL_BELOW 256  // knob: 0 128 256 512
#include <portkern/thin_product.h>
#ifdef PORTKERN_HOPPER
#include <cuda_fp16.h>
#include <portkern/hopper.h>
#endif

constexpr int THREADS = 256;
constexpr int64_t LEAST_DEPTH = 256;  // of a block's, where several share a tile

// How often an element of the operands is used, and of operands and result, if all are prepared.
inline double uses_of_operands(int64_t m, int64_t n) { return double(m) * n / (m + n); }
inline double products_per_element(int64_t m, int64_t n, int64_t k) {
    return double(m) * n * k / (double(m) * k + double(k) * n + double(m) * n);
}

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

// The bits of the largest element of each row of A or column of B, and those of the smallest that is
// not zero: of floats without their signs, they are ordered as the numbers are.
struct Range {
    unsigned *most, *least;
};

// Where halves do not do: at an infinity or NaN, or where something is lost beside the largest.
__device__ __forceinline__ bool is_odd(Range range, int64_t i) {
    const float most = __uint_as_float(range.most[i]), least = __uint_as_float(range.least[i]);
    return !isfinite(most) || (most > 0.0f && ilogbf(most) - ilogbf(least) > 40);
}

// Which tiles are to be computed: all, or those with a row or column of this kind.
struct Odd {
    Range rows = {}, columns = {};

    __device__ bool in(int64_t row0, int64_t column0, int side, int64_t m, int64_t n) const {
        if (!rows.most) return true;
        bool found = false;
        for (int i = threadIdx.x; i < side; i += THREADS)
            found |= (row0 + i < m && is_odd(rows, row0 + i)) ||
                     (column0 + i < n && is_odd(columns, column0 + i));
        return __syncthreads_or(found);
    }
};

// A block computes a square of 16 * T; each of its 16 x 16 threads T x T elements, in groups of 4
// rows and 4 columns that lie 64 apart. DEPTH makes the tiles of A and B one pack per thread each.
template <int T, bool ALIGNED>
__global__ __launch_bounds__(THREADS) void matmul_fma(const float* __restrict__ a,
                                                      const float* __restrict__ b,
                                                      float* __restrict__ c, int64_t m, int64_t n,
                                                      int64_t k, int64_t across, int64_t tiles,
                                                      int64_t each, Odd odd) {
    constexpr int SIDE = 16 * T, DEPTH = 64 / T;
    __shared__ alignas(16) float tile_a[2][DEPTH][SIDE + 4];  // transposed: columns of A
    __shared__ alignas(16) float tile_b[2][DEPTH][SIDE];
    const int64_t tile = blockIdx.x % tiles, row0 = tile / across * SIDE, column0 = tile % across * SIDE;
    const int64_t split = blockIdx.x / tiles, from = split * each, to = min(k, from + each);
    if (!odd.in(row0, column0, SIDE, m, n)) return;
    c += split * m * n;
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
    fetch(from);
    stage(0);
    __syncthreads();
    int turn = 0;
    for (int64_t depth = from; depth < to; depth += DEPTH, turn ^= 1) {
        if (depth + DEPTH < to) fetch(depth + DEPTH);
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
        if (depth + DEPTH < to) stage(turn ^ 1);
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
                 cudaStream_t stream, Odd odd = {}) {
    const int64_t across = (n + 16 * T - 1) / (16 * T), down = (m + 16 * T - 1) / (16 * T);
    if (T == 8 && across * down < FEW_TILES)  // too few blocks to fill a GPU: smaller ones
        return launch_tiles<4, ALIGNED>(a, b, c, m, n, k, stream, odd);
    Depths depths(odd.rows.most ? FEW_TILES * 2 : across * down, k, 64 / T, 2 * FEW_TILES, LEAST_DEPTH);
    Scratch<float> parts(depths.splits > 1 ? depths.splits * m * n : 0, stream);
    if (parts.error) return (int)parts.error;
    matmul_fma<T, ALIGNED><<<(unsigned)(across * down * depths.splits), THREADS, 0, stream>>>(
        a, b, parts.data ? parts.data : c, m, n, k, across, across * down, depths.each, odd);
    if (parts.data) thin::launch_add(parts.data, c, m * n, depths.splits, stream);
    return (int)cudaGetLastError();
}

#ifdef PORTKERN_HOPPER
// Strict float32 on tensor cores: x = (high + low / 2^11) / 2^s with halves high and low, which keep
// 22 bits and their signs, so that a product of two x takes three of halves (low * low is below the
// rounding). s is one number per row of A and column of B, so that halves have room for the largest
// element; what is 2^-26 times as large still has all its bits. Tensor cores round sums towards zero,
// so they add 64 products at most before an ordinary addition takes over.
namespace split {
constexpr int ROWS = 128, COLUMNS = 128, DEPTH = 64, SLOTS = 3, EXTRA = 11;
constexpr int A_TILE = ROWS * DEPTH, B_PIECE = DEPTH * 64, B_TILE = 2 * B_PIECE;
constexpr int TILE = 2 * (A_TILE + B_TILE), SHARED = SLOTS * TILE * (int)sizeof(half) + 1024;

__device__ __forceinline__ int shift(unsigned most) {
    const float largest = __uint_as_float(most);
    return isfinite(largest) && largest > 0.0f ? 13 - ilogbf(largest) : 0;
}
// x * 2^e, which takes one instruction where 2^e is a normal float.
__device__ __forceinline__ float scale(float x, int e) {
    return e >= -126 && e <= 127 ? x * __int_as_float((e + 127) << 23) : scalbnf(x, e);
}
__device__ __forceinline__ void widen(unsigned& most, unsigned& least, float x) {
    const unsigned bits = __float_as_uint(x) & 0x7fffffff;
    most = max(most, bits);
    if (bits) least = min(least, bits);
}

// `wide` threads to a row, whole warps.
__global__ __launch_bounds__(256) void range_of_rows(const float* x, int64_t rows, int64_t columns,
                                                     int wide, Range range) {
    unsigned most = 0, least = ~0u;
    const int64_t row = (int64_t)blockIdx.x * (256 / wide) + threadIdx.x / wide;
    if (row >= rows) return;
    const float4* packs = reinterpret_cast<const float4*>(x + row * columns);
    for (int64_t i = threadIdx.x % wide; i < columns / 4; i += wide) {
        const float4 v = packs[i];
        widen(most, least, v.x), widen(most, least, v.y), widen(most, least, v.z), widen(most, least, v.w);
    }
    most = __reduce_max_sync(~0u, most), least = __reduce_min_sync(~0u, least);
    if (threadIdx.x % 32 == 0) {
        atomicMax(range.most + row, most);
        atomicMin(range.least + row, least);
    }
}

// 128 columns and 64 rows to a block: 32 threads of four columns, 8 rows at once.
__global__ __launch_bounds__(256) void range_of_columns(const float* x, int64_t rows, int64_t columns,
                                                        Range range) {
    const int64_t bands = (columns + 127) / 128;
    const int64_t column = blockIdx.x % bands * 128 + threadIdx.x % 32 * 4, top = blockIdx.x / bands * 64;
    if (column >= columns) return;
    unsigned most[4] = {}, least[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int64_t row = top + r * 8 + threadIdx.x / 32;
        if (row >= rows) break;
        const float4 v = *reinterpret_cast<const float4*>(x + row * columns + column);
        widen(most[0], least[0], v.x), widen(most[1], least[1], v.y);
        widen(most[2], least[2], v.z), widen(most[3], least[3], v.w);
    }
    for (int j = 0; j < 4; ++j) {
        atomicMax(range.most + column + j, most[j]);
        atomicMin(range.least + column + j, least[j]);
    }
}

template <bool BY_ROW>
__global__ __launch_bounds__(256) void halve(const float* x, int64_t rows, int64_t columns, Range range,
                                             half* high, half* low) {
    const int64_t at = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    if (at >= rows * columns) return;
    const int64_t row = at / columns, column = at - row * columns;
    alignas(16) float v[8];
    alignas(16) half h[8], l[8];
    *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x + at);
    *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(x + at + 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const float scaled = scalbnf(v[j], shift(range.most[BY_ROW ? row : column + j]));
        h[j] = __float2half_rn(scaled);
        l[j] = __float2half_rn((scaled - __half2float(h[j])) * (1 << EXTRA));
    }
    *reinterpret_cast<uint4*>(high + at) = *reinterpret_cast<uint4*>(h);
    *reinterpret_cast<uint4*>(low + at) = *reinterpret_cast<uint4*>(l);
}

struct Maps {
    CUtensorMap high_a, low_a, high_b, low_b;
};
struct Barriers {
    uint64_t full[SLOTS], empty[SLOTS];
};

__device__ __forceinline__ int2 place(int number, int down, int across) {
    const int band = number / (BAND * across), first = band * BAND;
    const int height = min(BAND, down - first), within = number - first * across;
    return make_int2((first + within % height) * ROWS, within / height * COLUMNS);
}

__device__ __forceinline__ void load(const Maps& maps, half* tile, int2 at, int depth, uint64_t* full) {
    hopper::expect_bytes(full, TILE * sizeof(half));
    hopper::load_box(tile, &maps.high_a, depth, at.x, full);
    hopper::load_box(tile + A_TILE, &maps.low_a, depth, at.x, full);
    for (int p = 0; p < 2; ++p) {
        half* to = tile + 2 * A_TILE + p * B_PIECE;
        hopper::load_box(to, &maps.high_b, at.y + p * 64, depth, full);
        hopper::load_box(to + B_TILE, &maps.low_b, at.y + p * 64, depth, full);
    }
}

__global__ __launch_bounds__(384, 1) void matmul_split(const __grid_constant__ Maps maps, float* c,
                                                       const unsigned* most_a, const unsigned* most_b,
                                                       int64_t m, int64_t n, int down, int across,
                                                       int steps, int splits) {
    extern __shared__ unsigned char raw[];
    __shared__ Barriers pipe;
    __shared__ int of_columns[2][COLUMNS];  // shifts, of each group's tile
    half* tiles = reinterpret_cast<half*>(raw + (-hopper::address(raw) & 1023));
    const int group = threadIdx.x / 128, lane = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; ++s) {
            hopper::init(&pipe.full[s], 1);
            hopper::init(&pipe.empty[s], 2);
        }
        hopper::fence_barriers();
    }
    __syncthreads();
    int slot = 0, phase = 0;
    const auto advance = [&] {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    };
    // Tiles come `splits` times, each time with another part of the depth.
    const int count = down * across;
    const auto first = [&](int t) { return (int)((int64_t)steps * (t / count) / splits); };
    if (group == 0) {
        hopper::fewer_registers<40>();
        for (int t = blockIdx.x; lane == 0 && t < count * splits; t += gridDim.x)
            for (int step = first(t); step < first(t + count); ++step, advance()) {
                hopper::wait(&pipe.empty[slot], phase ^ 1);
                load(maps, tiles + slot * TILE, place(t % count, down, across), step * DEPTH, &pipe.full[slot]);
            }
        return;
    }
    hopper::more_registers<232>();
    for (int t = blockIdx.x; t < count * splits; t += gridDim.x) {
        const int2 at = place(t % count, down, across);
        const int todo = first(t + count) - first(t);
        asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");  // the tile before is stored
        of_columns[group - 1][lane] = at.y + lane < n ? shift(most_b[at.y + lane]) : 0;
        asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
        float* to = c + t / count * m * n;
        float total[64] = {}, part[64], small[64];
        for (int step = 0, last = 0; step < todo; ++step, last = slot, advance()) {
            hopper::wait(&pipe.full[slot], phase);
            const half* left = tiles + slot * TILE + (group - 1) * 64 * DEPTH;
            const half* right = tiles + slot * TILE + 2 * A_TILE;
            const auto of_a = [&](int d, int which) { return hopper::operand(left + which * A_TILE + d, 1024); };
            const auto of_b = [&](int d, int which) {
                return hopper::operand(right + which * B_TILE + d * 64, 1024, B_PIECE * sizeof(half));
            };
            hopper::begin_products();
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) hopper::multiply_f16(part, of_a(d, 0), of_b(d, 0), d > 0);
            hopper::commit_products();
            hopper::wait_products<1>();  // what was left of the step before: its tile is free
            if (step > 0 && lane == 0) hopper::arrive(&pipe.empty[last]);
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) {
                hopper::multiply_f16(small, of_a(d, 0), of_b(d, 1), step + d > 0);
                hopper::multiply_f16(small, of_a(d, 1), of_b(d, 0));
            }
            hopper::commit_products();
            hopper::wait_products<1>();
            hopper::settle(part);
#pragma unroll
            for (int i = 0; i < 64; ++i) total[i] += part[i];
        }
        hopper::wait_products<0>();
        hopper::settle(small);
        if (lane == 0) hopper::arrive(&pipe.empty[(slot + SLOTS - 1) % SLOTS]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int64_t row = at.x + (group - 1) * 64 + lane / 32 * 16 + lane % 32 / 4 + r * 8;
            if (row >= m) continue;
            const int of_row = shift(most_a[row]);
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                const int place = j * 8 + lane % 4 * 2;
                const int64_t column = at.y + place;
                if (column >= n) continue;
                float both[2];
                for (int e = 0; e < 2; ++e) {
                    const int i = j * 4 + r * 2 + e;
                    both[e] = scale(total[i] + small[i] * (1.0f / (1 << EXTRA)),
                                    -of_row - of_columns[group - 1][place + e]);
                }
                *reinterpret_cast<float2*>(to + row * n + column) = make_float2(both[0], both[1]);
            }
        }
    }
}
int launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const int64_t of_a = m * k, of_b = k * n, halves = 2 * (of_a + of_b);
    Scratch<unsigned char> work(halves * sizeof(half) + 2 * (m + n) * sizeof(unsigned), stream);
    if (work.error) return (int)work.error;
    half *high_a = (half*)work.data, *low_a = high_a + of_a, *high_b = low_a + of_a, *low_b = high_b + of_b;
    unsigned* most = (unsigned*)(work.data + halves * sizeof(half));
    unsigned* least = most + m + n;
    const Odd odd = {{most, least}, {most + m, least + m}};
    cudaMemsetAsync(most, 0, (m + n) * sizeof(unsigned), stream);
    cudaMemsetAsync(least, 0xff, (m + n) * sizeof(unsigned), stream);
    const int wide = k <= 128 ? 32 : k <= 512 ? 64 : 256;
    range_of_rows<<<(unsigned)((m * wide + 255) / 256), 256, 0, stream>>>(a, m, k, wide, odd.rows);
    const int64_t bands = (n + 127) / 128 * ((k + 63) / 64);
    range_of_columns<<<(unsigned)bands, 256, 0, stream>>>(b, k, n, odd.columns);
    halve<true><<<(unsigned)((of_a / 8 + 255) / 256), 256, 0, stream>>>(a, m, k, odd.rows, high_a, low_a);
    halve<false><<<(unsigned)((of_b / 8 + 255) / 256), 256, 0, stream>>>(b, k, n, odd.columns, high_b, low_b);
    Maps maps;
    constexpr auto KIND = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    int wrong = hopper::map_matrix(&maps.high_a, KIND, 2, high_a, m, k, ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.low_a, KIND, 2, low_a, m, k, ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.high_b, KIND, 2, high_b, k, n, DEPTH, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.low_b, KIND, 2, low_b, k, n, DEPTH, 64);
    const int down = (int)((m + ROWS - 1) / ROWS), across = (int)((n + COLUMNS - 1) / COLUMNS);
    const int64_t tiles = (int64_t)down * across, splits = splits_for(tiles, k, FEW_TILES, LEAST_DEPTH);
    Scratch<float> parts(splits > 1 ? splits * m * n : 0, stream);
    wrong = wrong ? wrong : (int)parts.error;
    if (!wrong) {
        cudaFuncSetAttribute(matmul_split, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
        matmul_split<<<(unsigned)min((int64_t)multiprocessors, tiles * splits), 384, SHARED, stream>>>(
            maps, parts.data ? parts.data : c, odd.rows.most, odd.columns.most, m, n, down, across,
            (int)((k + DEPTH - 1) / DEPTH), (int)splits);
        if (parts.data) thin::launch_add(parts.data, c, m * n, splits, stream);
        wrong = launch_tiles<8, true>(a, b, c, m, n, k, stream, odd);
    }
    return wrong;
}
}  // namespace split
#endif

template <bool ALIGNED>
int launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
#ifdef PORTKERN_HOPPER
    if (ALIGNED && k % 8 == 0 && n % 8 == 0 && double(m) * n * k >= SPLIT_FROM * 1e6 &&
        uses_of_operands(m, n) >= HALVE_FROM)
        return split::launch(a, b, c, m, n, k, stream);
#endif
    return launch_tiles<8, ALIGNED>(a, b, c, m, n, k, stream);
}

#else

#ifdef PORTKERN_FLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define MULTIPLY hopper::multiply_f16
#define KIND CU_TENSOR_MAP_DATA_TYPE_FLOAT16
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define MULTIPLY hopper::multiply_bf16
#define KIND CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
#endif

// What a block computes, its 8 warps 2 x 4 parts of it. Rows in shared memory are padded by 16 bytes,
// so that the 8 rows an ldmatrix touches at once lie in different banks.
template <int R, int C, int D>
struct Tile {
    static constexpr int ROWS = R, COLUMNS = C, DEPTH = D, PITCH_A = D + 8, PITCH_B = C + 8;
    static constexpr int WARP_ROWS = R / 2, WARP_COLUMNS = C / 4;
    static constexpr int STAGE = R * PITCH_A + D * PITCH_B;  // elements
    static constexpr int SLOTS = R == 128 ? STAGES : STAGES + 1;
    static constexpr int SHARED_BYTES = SLOTS * STAGE * sizeof(scalar_t);

    static int64_t across(int64_t n) { return (n + C - 1) / C; }
    static int64_t count(int64_t m, int64_t n) { return (m + R - 1) / R * across(n); }
    // Of the smallest tiles, which bring in most for each product, more blocks are to be under way; where
    // they are many, adding the parts takes longer than a shallow one's steps.
    static Depths depths(int64_t tiles, int64_t k) {
        const bool few = R == 32 && tiles < FEW_TILES / 4;
        const int64_t wanted = (R == 32 && !few ? 4 : 2) * FEW_TILES;
        return Depths(tiles, k, D, wanted, R == 128 ? LEAST_DEPTH : few ? 512 : 1024);
    }
};
using Large = Tile<128, 128, 32>;
using Middle = Tile<64, 128, 32>;
using Small = Tile<32, 64, 64>;

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
template <int PITCH>
__device__ __forceinline__ void load_left(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(tile + lane % 16 * PITCH + lane / 16 * 8)) : "memory");
}

// A 16 x 16 piece of B, transposed on the way: r[0], r[1] are its left 8 columns.
template <int PITCH>
__device__ __forceinline__ void load_right(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(tile + lane % 16 * PITCH + lane / 16 * 8)) : "memory");
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned* b) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two neighbours of a row; `column` is even.
template <bool ALIGNED, class Out>
__device__ __forceinline__ void store(Out* __restrict__ c, float first, float second,
                                      int64_t row, int64_t column, int64_t m, int64_t n) {
    struct alignas(2 * sizeof(Out)) Pair {
        Out at[2];
    };
    if (row >= m || column >= n) return;
    if (ALIGNED) {
        const Pair pair = {Out(first), Out(second)};
        reinterpret_cast<Pair*>(c)[(row * n + column) / 2] = pair;
        return;
    }
    c[row * n + column] = Out(first);
    if (column + 1 < n) c[row * n + column + 1] = Out(second);
}

// Out: float for sums that are a part of the depth, of C one after another.
template <class T, bool ALIGNED, class Out>
__global__ __launch_bounds__(THREADS) void matmul_mma(const scalar_t* __restrict__ a,
                                                      const scalar_t* __restrict__ b,
                                                      Out* __restrict__ c, int64_t m, int64_t n,
                                                      int64_t k, int64_t across, int64_t count,
                                                      int64_t each) {
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
    const int64_t tile = blockIdx.x % count, split = blockIdx.x / count, from = split * each;
    const int64_t row0 = tile / across * T::ROWS, column0 = tile % across * T::COLUMNS;
    c += split * m * n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * T::WARP_ROWS, warp_column = warp % 4 * T::WARP_COLUMNS;
    const int steps = (int)((min(each, k - from) + T::DEPTH - 1) / T::DEPTH);
    const auto fetch = [&](int step) {
        scalar_t* tile_a = tiles + step % T::SLOTS * T::STAGE;
        scalar_t* tile_b = tile_a + T::ROWS * T::PITCH_A;
        const int64_t depth = from + (int64_t)step * T::DEPTH;
#pragma unroll
        for (int i = 0; step < steps && i < T::ROWS * T::DEPTH / 8 / THREADS; ++i) {
            const int p = i * THREADS + threadIdx.x, r = p / (T::DEPTH / 8), d = p % (T::DEPTH / 8) * 8;
            copy<ALIGNED>(tile_a + r * T::PITCH_A + d, a, row0 + r, depth + d, m, k);
        }
#pragma unroll
        for (int i = 0; step < steps && i < T::DEPTH * T::COLUMNS / 8 / THREADS; ++i) {
            const int p = i * THREADS + threadIdx.x, e = p / (T::COLUMNS / 8), q = p % (T::COLUMNS / 8) * 8;
            copy<ALIGNED>(tile_b + e * T::PITCH_B + q, b, depth + e, column0 + q, k, n);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    constexpr int I = T::WARP_ROWS / 16, J = T::WARP_COLUMNS / 8;
    float sums[I][J][4] = {};
#pragma unroll
    for (int s = 0; s < T::SLOTS - 1; ++s) fetch(s);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(T::SLOTS - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + T::SLOTS - 1);
        const scalar_t* tile_a = tiles + step % T::SLOTS * T::STAGE + warp_row * T::PITCH_A;
        const scalar_t* tile_b = tiles + step % T::SLOTS * T::STAGE + T::ROWS * T::PITCH_A + warp_column;
#pragma unroll
        for (int d = 0; d < T::DEPTH; d += 16) {
            unsigned left[I][4], right[J / 2][4];
#pragma unroll
            for (int i = 0; i < I; ++i) load_left<T::PITCH_A>(left[i], tile_a + i * 16 * T::PITCH_A + d);
#pragma unroll
            for (int j = 0; j < J / 2; ++j) load_right<T::PITCH_B>(right[j], tile_b + d * T::PITCH_B + j * 16);
#pragma unroll
            for (int i = 0; i < I; ++i)
#pragma unroll
                for (int j = 0; j < J; ++j) multiply(sums[i][j], left[i], right[j / 2] + j % 2 * 2);
        }
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
#pragma unroll
        for (int j = 0; j < J; ++j) {
            const int64_t row = row0 + warp_row + i * 16 + lane / 4;
            const int64_t column = column0 + warp_column + j * 8 + lane % 4 * 2;
            store<ALIGNED>(c, sums[i][j][0], sums[i][j][1], row, column, m, n);
            store<ALIGNED>(c, sums[i][j][2], sums[i][j][3], row + 8, column, m, n);
        }
}

#ifdef PORTKERN_HOPPER
// Persistent blocks of three warpgroups: one has the copy engine bring tiles of A and B in, two
// multiply 64 rows each. A tile of C leaves through shared memory, also by the copy engine, while
// the next one's operands arrive.
namespace wide {
constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64, PIECES = COLUMNS / 64;
constexpr int A_TILE = ROWS * DEPTH, B_PIECE = DEPTH * 64, TILE = A_TILE + PIECES * B_PIECE;
constexpr int BUFFER = 64 * 128;  // of C: half the columns of one warpgroup's tile
constexpr int SHARED = (PIPELINE * TILE + 2 * BUFFER) * (int)sizeof(scalar_t) + 1024;

// The n-th tile: bands of BAND rows of tiles are walked column by column, so that what they share
// stays in the L2.
__device__ __forceinline__ int2 place(int number, int down, int across) {
    const int band = number / (BAND * across), first = band * BAND;
    const int height = min(BAND, down - first), within = number - first * across;
    return make_int2((first + within % height) * ROWS, within / height * COLUMNS);
}

struct Pipeline {
    uint64_t full[PIPELINE], empty[PIPELINE];
};

__global__ __launch_bounds__(384, 1) void matmul_wgmma(const __grid_constant__ CUtensorMap of_a,
                                                       const __grid_constant__ CUtensorMap of_b,
                                                       const __grid_constant__ CUtensorMap of_c,
                                                       int down, int across, int steps) {
    extern __shared__ unsigned char raw[];
    __shared__ Pipeline pipe;
    scalar_t* tiles = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    const int group = threadIdx.x / 128, lane = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < PIPELINE; ++s) {
            hopper::init(&pipe.full[s], 1);
            hopper::init(&pipe.empty[s], 2);
        }
        hopper::fence_barriers();
    }
    __syncthreads();
    int slot = 0, phase = 0;
    const auto advance = [&] {
        if (++slot == PIPELINE) slot = 0, phase ^= 1;
    };
    if (group == 0) {
        hopper::fewer_registers<40>();
        for (int t = blockIdx.x; lane == 0 && t < down * across; t += gridDim.x) {
            const int2 at = place(t, down, across);
            for (int step = 0; step < steps; ++step, advance()) {
                hopper::wait(&pipe.empty[slot], phase ^ 1);
                scalar_t* tile = tiles + slot * TILE;
                hopper::expect_bytes(&pipe.full[slot], TILE * sizeof(scalar_t));
                hopper::load_box(tile, &of_a, step * DEPTH, at.x, &pipe.full[slot]);
                for (int p = 0; p < PIECES; ++p)
                    hopper::load_box(tile + A_TILE + p * B_PIECE, &of_b, at.y + p * 64, step * DEPTH,
                                     &pipe.full[slot]);
            }
        }
        return;
    }
    hopper::more_registers<232>();
    scalar_t* buffer = tiles + PIPELINE * TILE + (group - 1) * BUFFER;
    for (int t = blockIdx.x; t < down * across; t += gridDim.x) {
        const int2 at = place(t, down, across);
        float sums[128] = {};
        hopper::begin_products();
        for (int step = 0, last = 0; step < steps; ++step, last = slot, advance()) {
            hopper::wait(&pipe.full[slot], phase);
            const scalar_t* left = tiles + slot * TILE + (group - 1) * 64 * DEPTH;
            const scalar_t* right = tiles + slot * TILE + A_TILE;
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) {
                const uint64_t a = hopper::operand(left + d, 1024);
                const uint64_t b = hopper::operand(right + d * 64, 1024, B_PIECE * sizeof(scalar_t));
                MULTIPLY(sums, a, b);
            }
            hopper::commit_products();
            hopper::wait_products<1>();  // the products of the step before: its tile is free
            if (step > 0 && lane == 0) hopper::arrive(&pipe.empty[last]);
        }
        hopper::wait_products<0>();
        hopper::settle(sums);
        if (lane == 0) hopper::arrive(&pipe.empty[(slot + PIPELINE - 1) % PIPELINE]);
        const int row = lane / 32 * 16 + lane % 32 / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (lane == 0) hopper::wait_stores();
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    struct alignas(4) Pair {
                        scalar_t at[2];
                    };
                    const float* from = sums + half * 64 + j * 4 + r * 2;
                    // Swizzled as the copy engine reads it: piece j of a row lies at j ^ row % 8.
                    const int to = (j / 8 * 64 + row + r * 8) * 64 + ((j ^ row) & 7) * 8 + lane % 4 * 2;
                    *reinterpret_cast<Pair*>(buffer + to) = {scalar_t(from[0]), scalar_t(from[1])};
                }
            hopper::fence_async();
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            if (lane == 0) {
                for (int p = 0; p < 2; ++p)
                    hopper::store_box(&of_c, buffer + p * 64 * 64, at.y + half * 128 + p * 64,
                                      at.x + (group - 1) * 64);
                hopper::commit_stores();
            }
        }
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
    CUtensorMap of_a, of_b, of_c;
    int wrong = hopper::map_matrix(&of_a, KIND, 2, a, m, k, ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&of_b, KIND, 2, b, k, n, DEPTH, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&of_c, KIND, 2, c, m, n, 64, 64);
    if (wrong) return wrong;
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const int down = (int)((m + ROWS - 1) / ROWS), across = (int)((n + COLUMNS - 1) / COLUMNS);
    const int blocks = min(multiprocessors, down * across), steps = (int)((k + DEPTH - 1) / DEPTH);
    cudaFuncSetAttribute(matmul_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    matmul_wgmma<<<blocks, 384, SHARED, stream>>>(of_a, of_b, of_c, down, across, steps);
    return (int)cudaGetLastError();
}
}  // namespace wide
#endif

template <class T, bool ALIGNED>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
                 cudaStream_t stream) {
    const int64_t tiles = T::count(m, n);
    const Depths depths = T::depths(tiles, k);
    const auto start = [&](auto kernel, auto* to) {
        // More than 48 KB of shared memory is dynamic and has to be asked for.
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED_BYTES);
        kernel<<<(unsigned)(tiles * depths.splits), THREADS, T::SHARED_BYTES, stream>>>(
            a, b, to, m, n, k, T::across(n), tiles, depths.each);
    };
    if (depths.splits == 1) {
        start(matmul_mma<T, ALIGNED, scalar_t>, c);
        return (int)cudaGetLastError();
    }
    Scratch<float> parts(depths.splits * m * n, stream);
    if (parts.error) return (int)parts.error;
    start(matmul_mma<T, ALIGNED, float>, parts.data);
    thin::launch_add(parts.data, c, m * n, depths.splits, stream);
    return (int)cudaGetLastError();
}

template <bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
#ifdef PORTKERN_HOPPER
    if (ALIGNED && k > 0 && m * n >= (int64_t)WIDE_FROM * 128 * 128)
        return wide::launch(a, b, c, m, n, k, stream);
#endif
    const int64_t tiles = Large::count(m, n);
    const bool narrow = m <= Large::ROWS / 2 || n <= Large::COLUMNS / 2;
    if (SMALL_BELOW > 0 && (narrow || tiles * Large::depths(tiles, k).splits < SMALL_BELOW)) {
        const int64_t middle = Middle::count(m, n);
        if (m > Small::ROWS && n > Small::COLUMNS && middle * Middle::depths(middle, k).splits >= FEW_TILES)
            return launch_tiles<Middle, ALIGNED>(a, b, c, m, n, k, stream);
        return launch_tiles<Small, ALIGNED>(a, b, c, m, n, k, stream);
    }
    return launch_tiles<Large, ALIGNED>(a, b, c, m, n, k, stream);
}

#endif

// Rows of `wide` elements, from rows of `columns`: as many of them as both have, then zeros.
__global__ __launch_bounds__(THREADS) void copy_rows(const scalar_t* __restrict__ from,
                                                     scalar_t* __restrict__ to, int64_t rows,
                                                     int64_t columns, int64_t wide) {
    constexpr int ABREAST = 4, ACROSS = THREADS / ABREAST;
    for (int64_t row = blockIdx.x * ABREAST + threadIdx.x / ACROSS; row < rows; row += gridDim.x * ABREAST)
#pragma unroll 4
        for (int64_t i = threadIdx.x % ACROSS; i < wide; i += ACROSS)
            to[row * wide + i] = i < columns ? from[row * columns + i] : scalar_t(0.0f);
}

void launch_copy(const scalar_t* from, scalar_t* to, int64_t rows, int64_t columns, int64_t wide,
                 cudaStream_t stream) {
    const unsigned blocks = (unsigned)(rows < 1 << 18 ? (rows + 3) / 4 : 1 << 16);
    copy_rows<<<blocks, THREADS, 0, stream>>>(from, to, rows, columns, wide);
}

// With rows of whole packs, in memory of its own.
int launch_padded(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
                  cudaStream_t stream) {
    const int64_t wide = (n + 7) / 8 * 8, deep = (k + 7) / 8 * 8;
    Scratch<scalar_t> own_a(m * deep, stream), own_b(deep * wide, stream), own_c(m * wide, stream);
    for (const cudaError_t error : {own_a.error, own_b.error, own_c.error})
        if (error) return (int)error;
    launch_copy(a, own_a.data, m, k, deep, stream);
    launch_copy(b, own_b.data, k, n, wide, stream);
    if (deep > k)
        cudaMemsetAsync(own_b.data + k * wide, 0, (deep - k) * wide * sizeof(scalar_t), stream);
    const int wrong = launch<true>(own_a.data, own_b.data, own_c.data, m, wide, deep, stream);
    launch_copy(own_c.data, c, m, wide, n, stream);
    return wrong ? wrong : (int)cudaGetLastError();
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, 1, m, n, k}, stream);
    if (aligned) return launch<true>(a, b, c, m, n, k, stream);
    const bool dense = sizeof(scalar_t) == 2 || products_per_element(m, n, k) >= PAD_DENSE;
    if (k > 0 && dense && double(m) * n * k >= PAD_FROM * 1e6)
        return launch_padded(a, b, c, m, n, k, stream);
    return launch<false>(a, b, c, m, n, k, stream);
}
