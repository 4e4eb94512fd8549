// Products of 16 x 16 x 16 halves on matrix units: MFMA of CDNA, mma.sync of NVIDIA's GPUs from sm_80 on.
// MATRIX_UNIT is defined where there is one. CDNA's macros exist in the device's pass only, so a
// host that launches for AMD cannot know; TENSOR_CORES is NVIDIA's, and known to the host as well.
//
// A fragment is a lane's part of 16 rows (of the right operand: columns) of depth 16, which come from shared
// memory, where the depth lies inside and rows `pitch` apart; an odd number of packs keeps them in different
// banks. Both operands have the same fragments.
#pragma once
#include <portkern/packs.h>

#ifndef PORTKERN_FLOAT32
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define MATRIX_UNIT 1
#elif !PORTKERN_AMD
#define MATRIX_UNIT 1
#define TENSOR_CORES 1
#include <portkern/tensor_cores.h>
#endif
#endif

#ifdef MATRIX_UNIT
namespace matrix_unit {

#ifdef TENSOR_CORES
constexpr int LANES = 32;

struct Fragment {
    unsigned pair[4];
};
struct Sums {
    float at[8];
    __device__ __forceinline__ float& operator[](int e) { return at[e]; }
    __device__ __forceinline__ float operator[](int e) const { return at[e]; }
};

// Of element e of Sums.
__device__ __forceinline__ int row(int e) { return threadIdx.x % 32 / 4 + e / 2 % 2 * 8; }
__device__ __forceinline__ int column(int e) { return threadIdx.x % 4 * 2 + e % 2 + e / 4 * 8; }

__device__ __forceinline__ Fragment fragment(const scalar_t* tile, int pitch) {
    Fragment f;
    load_pieces(f.pair, tile + threadIdx.x % 16 * pitch + threadIdx.x % 32 / 16 * 8);
    return f;
}
// Of a tile with the depth outside, whose depths lie `pitch` apart.
__device__ __forceinline__ Fragment fragment_turned(const scalar_t* tile, int pitch) {
    const int lane = threadIdx.x % 32;
    const scalar_t* from = tile + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
    Fragment f;
    load_pieces<true>(f.pair, from);
    return f;
}

__device__ __forceinline__ void multiply(Sums& sums, const Fragment& left, const Fragment& right) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const unsigned columns[2] = {right.pair[j], right.pair[j + 2]};
        mma(sums.at + j * 4, sums.at + j * 4 + 2, left.pair, columns);
    }
}

__device__ __forceinline__ float power_of_2(float of) {  // in one instruction, good enough for halves
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(of));
    return of;
}

// 16 bytes of memory, or zeros, to shared memory, without registers; wait_copies() awaits the thread's own.
__device__ __forceinline__ void copy_async(scalar_t* to, const scalar_t* from, bool there) {
    ::copy_async<16>(to, from, there ? 16 : 0);
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int BUT>  // the last groups, which may still be under way
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory");
}

#else
constexpr int LANES = 64;
typedef float Sums __attribute__((ext_vector_type(4)));
#ifdef PORTKERN_FLOAT16
typedef _Float16 Fragment __attribute__((ext_vector_type(4)));
#define MATRIX_UNIT_MFMA __builtin_amdgcn_mfma_f32_16x16x16f16
#else
typedef short Fragment __attribute__((ext_vector_type(4)));
#define MATRIX_UNIT_MFMA __builtin_amdgcn_mfma_f32_16x16x16bf16_1k
#endif

// Of element e of Sums.
__device__ __forceinline__ int row(int e) { return threadIdx.x % 64 / 16 * 4 + e; }
__device__ __forceinline__ int column(int) { return threadIdx.x % 16; }

__device__ __forceinline__ Fragment fragment(const scalar_t* tile, int pitch) {
    const scalar_t* from = tile + threadIdx.x % 16 * pitch + threadIdx.x % 64 / 16 * 4;
    return *reinterpret_cast<const Fragment*>(from);
}
__device__ __forceinline__ void multiply(Sums& sums, const Fragment& left, const Fragment& right) {
    sums = MATRIX_UNIT_MFMA(left, right, sums, 0, 0, 0);
}
__device__ __forceinline__ float power_of_2(float of) { return exp2f(of); }
#endif

// A lane has LANE_ROWS x LANE_COLUMNS of a product's sums: which element one is, and where it lies.
constexpr int LANE_ROWS = LANES == 32 ? 2 : 4, LANE_COLUMNS = LANES == 32 ? 4 : 1;
__device__ __forceinline__ constexpr int element_at(int i, int j) {
    return LANE_COLUMNS == 1 ? i : j / 2 * 4 + i * 2 + j % 2;
}
__device__ __forceinline__ int row_at(int i) { return row(element_at(i, 0)); }
__device__ __forceinline__ int column_at(int j) { return column(element_at(0, j)); }

// Products in a chain: what chain() sums up becomes, as halves, an operand of the next product, at whose
// depths the other's rows lie. By MFMA that is a right operand, by mma.sync a left one; `own` is the operand
// that it takes the place of. Of each of OWNED rows of that a lane has 4 elements, RUN neighbours at a time,
// and so have the three lanes that lie STEP and 2 STEP apart.
constexpr int OWNED = 64 / LANES, RUN = 4 / OWNED, STEP = LANES == 64 ? 16 : 1;

__device__ __forceinline__ constexpr int element(int h, int k) {
    return OWNED == 2 ? element_at(h, k) : element_at(k, h);
}
__device__ __forceinline__ int own_row(int h) { return OWNED == 2 ? row_at(h) : column_at(h); }
__device__ __forceinline__ int other_row(int k) { return OWNED == 2 ? column_at(k) : row_at(k); }

__device__ __forceinline__ void chain(Sums& sums, const Fragment& other, const Fragment& own) {
    if constexpr (OWNED == 2) multiply(sums, own, other);
    else multiply(sums, other, own);
}
__device__ __forceinline__ Fragment halves(const Sums& sums) {
    Some<4 * OWNED> all;
#pragma unroll
    for (int e = 0; e < 4 * OWNED; ++e) all.at[e] = scalar_t(sums[e]);
    return __builtin_bit_cast(Fragment, all);
}
__device__ __forceinline__ float largest_of_row(float value) {
    value = fmaxf(value, warp_shuffle_xor(value, STEP));
    return fmaxf(value, warp_shuffle_xor(value, 2 * STEP));
}
__device__ __forceinline__ float sum_of_row(float value) {
    value += warp_shuffle_xor(value, STEP);
    return value + warp_shuffle_xor(value, 2 * STEP);
}

}  // namespace matrix_unit
#endif
