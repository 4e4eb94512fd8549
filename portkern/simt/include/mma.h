// nvcuda::wmma: matrix products of a warp in C++.
//
// CUDA leaves open which lane holds which element. Here they lie as on a GPU of compute capability
// 8.0 to 9.0, float16 fragments of 16 elements with their repetitions included.
#pragma once
#include "simt/cuda_only.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "simt/matrix_halves.h"

namespace nvcuda {
namespace wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

static inline float __float_to_tf32(float x) { return simt::round_tf32_away(x); }

template <class T>
struct helper_traits {
    using element_type = T;
    using storage_element_type = T;
    using fill_argument_type = T;
};
template <>
struct helper_traits<precision::tf32> {
    using element_type = precision::tf32;
    using storage_element_type = float;
    using fill_argument_type = float;
};

}  // namespace wmma
}  // namespace nvcuda

namespace simt {
namespace wmma {

using namespace nvcuda::wmma;

template <class T>
using Stored = typename helper_traits<T>::storage_element_type;
// How an element enters a product: only tf32 is stored as another type.
template <class T>
struct Operand {
    using Type = T;
};
template <>
struct Operand<precision::tf32> {
    using Type = tf32;
};

// The combinations that the CUDA C++ Programming Guide lists, without the sub-byte types.
template <int M, int N, int K, class T>
constexpr bool shape_of() {
    if (std::is_same<T, precision::tf32>::value) return M == 16 && N == 16 && K == 8;
    if (std::is_same<T, double>::value) return M == 8 && N == 8 && K == 4;
    return K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32));
}
template <int M, int N, int K, class T>
constexpr bool sum_of() {
    if (std::is_same<T, double>::value) return shape_of<M, N, K, double>();
    if (std::is_same<T, float>::value && shape_of<M, N, K, precision::tf32>()) return true;
    return shape_of<M, N, K, int>();
}

// Where element i of a fragment lies, as row and column.
struct Cell {
    int row, column;
};
template <class Use, int M, int N, int K, class T>
static inline Cell cell(int lane, int i) {
    constexpr bool turned = N == 32;  // 8 x 32: A takes B's layout, B takes A's
    constexpr int per = matrix::per_register<typename Operand<T>::Type>;
    if constexpr (std::is_same<Use, matrix_a>::value) {
        const auto p = turned ? matrix::flat<M, K, per>(lane, i) : matrix::tall<M, K, per>(lane, i);
        return {p.outer, p.inner};
    } else if constexpr (std::is_same<Use, matrix_b>::value) {
        const auto p = turned ? matrix::tall<N, K, per>(lane, i) : matrix::flat<N, K, per>(lane, i);
        return {p.inner, p.outer};
    } else {
        const auto p = turned ? matrix::tall<N, M, 2>(lane, i) : matrix::tall<M, N, 2>(lane, i);
        return turned ? Cell{p.inner, p.outer} : Cell{p.outer, p.inner};
    }
}

template <class Use, int M, int N, int K, class T>
constexpr int elements() {
    if (std::is_same<Use, accumulator>::value) return M * N / 32;
    if (std::is_same<T, __half>::value) return 16;
    return (std::is_same<Use, matrix_a>::value ? M : N) * K / 32;
}

}  // namespace wmma
}  // namespace simt

namespace nvcuda {
namespace wmma {

template <class T, int SIZE, int PACKED = SIZE>
struct alignas(8) __frag_base {
    enum { num_elements = SIZE };
    enum { num_storage_elements = PACKED };
    using element_type = T;
    using storage_element_type = simt::wmma::Stored<T>;
    storage_element_type x[PACKED];
};

template <class Use, int m, int n, int k, class T, class Layout = void>
class fragment : public __frag_base<T, simt::wmma::elements<Use, m, n, k, T>()> {
    static_assert(std::is_same<Use, accumulator>::value ? simt::wmma::sum_of<m, n, k, T>()
                                                        : simt::wmma::shape_of<m, n, k, T>(),
                  "wmma has no fragment of this shape and type");
};

template <class T, int SIZE, int PACKED>
static inline void fill_fragment(__frag_base<T, SIZE, PACKED>& f,
                                 const typename helper_traits<T>::fill_argument_type& value) {
    for (auto& element : f.x) element = value;
}

}  // namespace wmma
}  // namespace nvcuda

namespace simt {
namespace wmma {

// The warp's lanes meet; their accesses are not ordered by it.
SIMT_NO_CHECK inline void met(char* const*, Mask) {}
static inline int meet_as_warp(const void* p, size_t row_bytes, Site at) {
    if (SIMT_UNLIKELY((uintptr_t)p % 16 || row_bytes % 16))
        finding(106, at, "a fragment at %p with rows of %zu bytes: both must be multiples of 16", p,
                row_bytes);
    char nothing = 0;
    together(matrix::group(32), nothing, met, at);
    return thread_rank() & 31;
}

template <class Use, int M, int N, int K, class T, class L>
static inline void load(fragment<Use, M, N, K, T, L>& f, const Stored<T>* p, unsigned ldm,
                        bool by_rows, Site at) {
    const int lane = meet_as_warp(p, ldm * sizeof(Stored<T>), at);
    for (int i = 0; i < f.num_storage_elements; ++i) {
        const Cell c = cell<Use, M, N, K, T>(lane, i);
        f.x[i] = p[by_rows ? (size_t)c.row * ldm + c.column : (size_t)c.column * ldm + c.row];
    }
}

template <int M, int N, int K, class A, class B, class C, class D>
struct Product {
    static constexpr int lanes = 32;
    using Left = matrix::Traits<typename Operand<A>::Type>;
    using Numbers = matrix::Numbers<typename Left::Compute, M, N, K>;
    const Stored<A>* a;
    const Stored<B>* b;
    const C* c;
    D* d;
    bool saturate;
    Site at;

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        for (int i = 0; i < M * K / 32; ++i) {
            const Cell p = cell<matrix_a, M, N, K, A>(lane, i);
            n.a[0][p.column][p.row] = Left::get(a, i);
        }
        for (int i = 0; i < K * N / 32; ++i) {
            const Cell p = cell<matrix_b, M, N, K, B>(lane, i);
            n.b[0][p.row][p.column] = Left::get(b, i);
        }
        for (int i = 0; i < M * N / 32; ++i) {
            const Cell p = cell<accumulator, M, N, K, C>(lane, i);
            n.c[0][p.row][p.column] = matrix::Traits<C>::get(c, i);
        }
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        for (int i = 0; i < M * N / 32; ++i) {
            const Cell p = cell<accumulator, M, N, K, D>(lane, i);
            matrix::Traits<D>::set(d, i, matrix::finish(n.c[0][p.row][p.column], saturate));
        }
    }
};

}  // namespace wmma
}  // namespace simt

namespace nvcuda {
namespace wmma {

template <class Use, int m, int n, int k, class T, class Layout>
static inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& a,
                                    const typename helper_traits<T>::storage_element_type* p,
                                    unsigned ldm, SIMT_AT) {
    static_assert(!std::is_void<Layout>::value, "an accumulator is loaded with a layout_t");
    simt::wmma::load(a, p, ldm, std::is_same<Layout, row_major>::value, at);
}
template <int m, int n, int k, class T>
static inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& a, const T* p, unsigned ldm,
                                    layout_t layout, SIMT_AT) {
    simt::wmma::load(a, p, ldm, layout == mem_row_major, at);
}

template <int m, int n, int k, class T>
static inline void store_matrix_sync(T* p, const fragment<accumulator, m, n, k, T>& a, unsigned ldm,
                                     layout_t layout, SIMT_AT) {
    const int lane = simt::wmma::meet_as_warp(p, ldm * sizeof(T), at);
    for (int i = 0; i < a.num_elements; ++i) {
        const auto c = simt::wmma::cell<accumulator, m, n, k, T>(lane, i);
        p[layout == mem_row_major ? (size_t)c.row * ldm + c.column
                                  : (size_t)c.column * ldm + c.row] = a.x[i];
    }
    simt::wmma::meet_as_warp(p, ldm * sizeof(T), at);  // no lane goes on before all have stored
}

// d = a b + c; with `satf`, int32 sums that do not fit become the nearest number.
template <int m, int n, int k, class T, class LA, class LB, class C, class D>
static inline void mma_sync(fragment<accumulator, m, n, k, D>& d,
                            const fragment<matrix_a, m, n, k, T, LA>& a,
                            const fragment<matrix_b, m, n, k, T, LB>& b,
                            const fragment<accumulator, m, n, k, C>& c, bool satf = false,
                            SIMT_AT) {
    fragment<accumulator, m, n, k, D> result;
    simt::wmma::Product<m, n, k, T, T, C, D> own = {a.x, b.x, c.x, result.x, satf, at};
    simt::matrix::multiply(own);
    d = result;
}

}  // namespace wmma
}  // namespace nvcuda
