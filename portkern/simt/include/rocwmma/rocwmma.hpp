// rocwmma: matrix products of a wave in C++, for blocks of 16 x 16 and 32 x 32.
//
// Which lane holds which element is rocwmma's own business; here accumulators lie as the matrix
// instructions leave them, and operands by rows (columns) over the lanes.
#pragma once
#include "../hip/hip_bfloat16.h"
#include "../hip/hip_fp16.h"
#include "../simt/matrix_halves.h"

namespace simt {
namespace matrix {
template <>
struct Traits<hip_bfloat16> : Traits<bf16> {};
}  // namespace matrix
}  // namespace simt

namespace rocwmma {

#ifdef __FLT16_MAX__
using float16_t = _Float16;
#endif
using hfloat16_t = __half;
using bfloat16_t = hip_bfloat16;
using float32_t = float;
using float64_t = double;
using int8_t = ::int8_t;
using uint8_t = ::uint8_t;
using int32_t = ::int32_t;

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t : uint32_t { mem_row_major, mem_col_major };

struct Constants {
#ifdef __AMDGCN_WAVEFRONT_SIZE
    static constexpr uint32_t AMDGCN_WAVE_SIZE = __AMDGCN_WAVEFRONT_SIZE;
#else
    // Not known while compiling: each half of a 64-lane wave does the whole product.
    static constexpr uint32_t AMDGCN_WAVE_SIZE = 32;
#endif
};

}  // namespace rocwmma

namespace simt {
namespace rocwmma {

using namespace ::rocwmma;
constexpr int wave = (int)Constants::AMDGCN_WAVE_SIZE;

struct Cell {
    int row, column;
};
template <class Use, int M, int N, int K>
SIMT_NO_CHECK static inline Cell cell(int lane, int i) {
    if constexpr (std::is_same<Use, matrix_a>::value) {
        return {lane % M, lane / M * (M * K / wave) + i};
    } else if constexpr (std::is_same<Use, matrix_b>::value) {
        return {lane / N * (K * N / wave) + i, lane % N};
    } else {  // CDNA keeps four rows together, RDNA one
        constexpr int height = wave == 64 ? 4 : 1, strips = wave / N;
        return {i / height * height * strips + lane / N * height + i % height, lane % N};
    }
}

template <class Use, int M, int N, int K>
constexpr int elements() {
    return (std::is_same<Use, matrix_a>::value   ? M * K
            : std::is_same<Use, matrix_b>::value ? K * N
                                                 : M * N) / wave;
}

SIMT_NO_CHECK inline void met(char* const*, Mask) {}
static inline int meet_as_wave(Site at) {
    char nothing = 0;
    together(matrix::group(wave), nothing, met, at);
    return (int)(thread_rank() % wave);
}

// Row-major data of `ldm` elements between rows, or column-major between columns.
static inline size_t offset(Cell c, uint32_t ldm, bool by_rows) {
    return by_rows ? (size_t)c.row * ldm + c.column : (size_t)c.column * ldm + c.row;
}

template <int M, int N, int K, class A, class B, class C>
struct Product {
    static constexpr int lanes = wave;
    // float32 operands are multiplied exactly, the others in what their type says
    using Input = std::conditional_t<std::is_same<A, float>::value, matrix::Fused, A>;
    using Numbers = matrix::Numbers<typename matrix::Traits<Input>::Compute, M, N, K>;
    const A* a;
    const B* b;
    const C* c;
    C* d;
    Site at;

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        for (int i = 0; i < M * K / wave; ++i) {
            const Cell p = cell<matrix_a, M, N, K>(lane, i);
            n.a[0][p.column][p.row] = matrix::Traits<Input>::get(a, i);
        }
        for (int i = 0; i < K * N / wave; ++i) {
            const Cell p = cell<matrix_b, M, N, K>(lane, i);
            n.b[0][p.row][p.column] = matrix::Traits<Input>::get(b, i);
        }
        for (int i = 0; i < M * N / wave; ++i) {
            const Cell p = cell<accumulator, M, N, K>(lane, i);
            n.c[0][p.row][p.column] = matrix::Traits<C>::get(c, i);
        }
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        for (int i = 0; i < M * N / wave; ++i) {
            const Cell p = cell<accumulator, M, N, K>(lane, i);
            matrix::Traits<C>::set(d, i, matrix::finish(n.c[0][p.row][p.column], false));
        }
    }
};

}  // namespace rocwmma
}  // namespace simt

namespace rocwmma {

template <class Use, uint32_t BlockM, uint32_t BlockN, uint32_t BlockK, class T,
          class Layout = void>
class fragment {
    static constexpr int count = simt::rocwmma::elements<Use, BlockM, BlockN, BlockK>();
    static_assert((BlockM == 16 || BlockM == 32) && (BlockN == 16 || BlockN == 32) &&
                      BlockK >= 8 - 4 * (sizeof(T) >= 4) && BlockK % 4 == 0 && count > 0,
                  "this executor has rocwmma blocks of 16 and 32 rows and columns");

public:
    using element_type = T;
    using Type = T;
    static constexpr uint32_t num_elements = count;
    static constexpr uint32_t size() { return count; }
    static constexpr uint32_t height() {
        return std::is_same<Use, matrix_b>::value ? BlockK : BlockM;
    }
    static constexpr uint32_t width() {
        return std::is_same<Use, matrix_a>::value ? BlockK : BlockN;
    }

    T x[count];
    T& operator[](uint32_t i) { return x[i]; }
    const T& operator[](uint32_t i) const { return x[i]; }
};

template <class Use, uint32_t M, uint32_t N, uint32_t K, class T, class Layout>
static inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, T value) {
    for (T& element : f.x) element = value;
}

template <class Use, uint32_t M, uint32_t N, uint32_t K, class T, class Layout>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* p, uint32_t ldm,
                                    SIMT_AT) {
    static_assert(!std::is_void<Layout>::value, "an accumulator is loaded with a layout_t");
    const int lane = simt::rocwmma::meet_as_wave(at);
    for (uint32_t i = 0; i < f.num_elements; ++i)
        f.x[i] = p[simt::rocwmma::offset(simt::rocwmma::cell<Use, M, N, K>(lane, i), ldm,
                                         std::is_same<Layout, row_major>::value)];
}
template <uint32_t M, uint32_t N, uint32_t K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* p, uint32_t ldm,
                                    layout_t layout, SIMT_AT) {
    const int lane = simt::rocwmma::meet_as_wave(at);
    for (uint32_t i = 0; i < f.num_elements; ++i)
        f.x[i] = p[simt::rocwmma::offset(simt::rocwmma::cell<accumulator, M, N, K>(lane, i), ldm,
                                         layout == mem_row_major)];
}

namespace detail {
template <class Use, uint32_t M, uint32_t N, uint32_t K, class T, class Layout>
static inline void store(T* p, const fragment<Use, M, N, K, T, Layout>& f, uint32_t ldm,
                         bool by_rows, simt::Site at) {
    const int lane = simt::rocwmma::meet_as_wave(at);
    if (simt::lane_id() >= simt::rocwmma::wave) return;  // the lower half has stored it
    for (uint32_t i = 0; i < f.num_elements; ++i)
        p[simt::rocwmma::offset(simt::rocwmma::cell<Use, M, N, K>(lane, i), ldm, by_rows)] = f.x[i];
}
}  // namespace detail

template <class Use, uint32_t M, uint32_t N, uint32_t K, class T, class Layout>
static inline void store_matrix_sync(T* p, const fragment<Use, M, N, K, T, Layout>& f, uint32_t ldm,
                                     SIMT_AT) {
    static_assert(!std::is_void<Layout>::value, "an accumulator is stored with a layout_t");
    detail::store(p, f, ldm, std::is_same<Layout, row_major>::value, at);
}
template <uint32_t M, uint32_t N, uint32_t K, class T>
static inline void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, uint32_t ldm,
                                     layout_t layout, SIMT_AT) {
    detail::store(p, f, ldm, layout == mem_row_major, at);
}

// d = a b + c
template <uint32_t M, uint32_t N, uint32_t K, class A, class B, class C, class LA, class LB,
          class LC, class LD>
static inline void mma_sync(fragment<accumulator, M, N, K, C, LD>& d,
                            const fragment<matrix_a, M, N, K, A, LA>& a,
                            const fragment<matrix_b, M, N, K, B, LB>& b,
                            const fragment<accumulator, M, N, K, C, LC>& c, SIMT_AT) {
    static_assert(std::is_same<A, B>::value, "this executor has products of equal types");
    fragment<accumulator, M, N, K, C, LD> result;
    simt::rocwmma::Product<M, N, K, A, B, C> own = {a.x, b.x, c.x, result.x, at};
    simt::matrix::multiply(own);
    d = result;
}

static inline void synchronize_workgroup(SIMT_AT) { simt::block_barrier(at); }

}  // namespace rocwmma
