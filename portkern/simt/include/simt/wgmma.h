// PTX's wgmma: products of a warpgroup, whose operands lie in shared memory. Each of its four warps makes
// its 16 rows when it issues them: what waits for them finds them done, and operands that are changed
// before the wait do no harm here.
#pragma once
#include "matrix.h"
#include "ptx_async.h"

namespace simt {
namespace ptx {

// A matrix descriptor ("Matrix Descriptor Format", PTX ISA). Pieces are of 16 bytes.
struct MatrixOperand {
    uint32_t start, leading, stride, span;  // bytes; span: of a swizzled row, or 0

    static uint32_t field(uint64_t descriptor, int bit) { return (descriptor >> bit & 0x3FFF) << 4; }
    MatrixOperand(uint64_t descriptor, Site at)
        : start(field(descriptor, 0)), leading(field(descriptor, 16)), stride(field(descriptor, 32)) {
        const unsigned swizzle = descriptor >> 62;
        span = swizzle ? 256u >> swizzle : 0;
        if (descriptor >> 49 & 7) fatal(314, at, "a matrix descriptor with a base offset, which has no model");
    }
    // Piece `piece` along the depth of a row; of what lies across the depth, piece `piece` of depth k.
    const char* along(uint32_t row, uint32_t piece) const {
        const uint32_t core = row / 8 * stride;
        return at(span ? core + row % 8 * span + piece * 16 : core + row % 8 * 16 + piece * leading);
    }
    const char* across(uint32_t k, uint32_t piece) const {
        const uint32_t wide = span / 16, low = k % 8, high = k / 8;
        if (!span) return at(piece * stride + low * 16 + high * leading);
        return at(piece / wide * leading + piece % wide * 16 + low * span + high * stride);
    }

private:
    const char* at(uint32_t offset) const { return shared_at(swizzled(start + offset, span)); }
};

// A warp's 16 rows of A (without registers of its own), or the columns of B, as pieces that its lanes
// read; ACROSS: pieces are of neighbouring rows or columns, else of the depth.
template <class T, int COUNT, int K, bool ACROSS>
struct Pieces {
    static constexpr int each = 128 / matrix::Traits<T>::bits;  // elements of a piece
    static constexpr int pieces = COUNT * K / each, per_lane = (pieces + 31) / 32;
    static constexpr int wide = ACROSS ? COUNT / each : K / each;
    using Piece = Vector<uint32_t, 4>;
    Piece of[per_lane];

    SIMT_INLINE void read(Pieces& own, const MatrixOperand& from, uint32_t first, Site at) {
        for (int i = 0, p = (int)lane(); i < per_lane && p < pieces; ++i, p += 32)
            own.of[i] = ld<Piece>(ACROSS ? from.across(p / wide, first / each + p % wide)
                                         : from.along(first + p / wide, p % wide), at);
    }
    template <class C>
    SIMT_NO_CHECK void give(int lane, C (&to)[K][COUNT], int scale) const {
        for (int i = 0, p = lane; i < per_lane && p < pieces; ++i, p += 32)
            for (int e = 0; e < each; ++e) {
                const int outer = ACROSS ? p % wide * each + e : p / wide;
                const int k = ACROSS ? p / wide : p % wide * each + e;
                to[k][outer] = matrix::Traits<T>::get(&of[i], e) * scale;
            }
    }
};

struct WgmmaWith {  // what the instruction says beside its operands
    bool keep;      // D += A B, else D = A B
    bool saturate;
    int scale_a, scale_b;  // 1 or -1
};

template <int N, int K, class A, class B, class D, bool A_ACROSS, bool B_ACROSS>
struct Wgmma {
    static constexpr int lanes = 32, rows = 16;
    using Compute = typename matrix::Traits<A>::Compute;
    using Numbers = matrix::Numbers<Compute, rows, N, K>;
    Pieces<A, rows, K, A_ACROSS> a;
    Pieces<B, N, K, B_ACROSS> b;
    const void* own_a;  // registers in place of pieces
    void* d;
    WgmmaWith with;
    Site at;

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        if (!own_a) a.give(lane, n.a[0], with.scale_a);
        for (int i = 0; own_a && i < rows * K / 32; ++i) {
            const auto p = matrix::tall<rows, K, matrix::per_register<A>>(lane, i);
            n.a[0][p.inner][p.outer] = matrix::Traits<A>::get(own_a, i) * with.scale_a;
        }
        b.give(lane, n.b[0], with.scale_b);
        if (with.keep) matrix::give_sums<D>(n.c[0], d, lane);
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        matrix::take_sums<D>(n.c[0], d, lane, with.saturate);
    }
};

template <class Own, size_t ND>
static inline void multiply_warpgroup(Own& own, Register<4>* const (&d)[ND], uint64_t b, WgmmaWith with,
                                      Site at) {
    Register<4> out[ND];
    for (size_t i = 0; i < ND; ++i) out[i] = *d[i];
    own.b.read(own.b, MatrixOperand(b, at), 0, at);
    own.d = out;
    own.with = with;
    own.at = at;
    matrix::multiply(own);
    for (size_t i = 0; i < ND; ++i) *d[i] = out[i];
}

// A from shared memory, or from registers, which hold a warp's rows as those of mma.sync.
template <int N, int K, class A, class B, class D, bool A_ACROSS, bool B_ACROSS, size_t ND>
static inline void wgmma(Register<4>* const (&d)[ND], uint64_t a, uint64_t b, WgmmaWith with, SIMT_AT) {
    Wgmma<N, K, A, B, D, A_ACROSS, B_ACROSS> own;
    own.own_a = nullptr;
    own.a.read(own.a, MatrixOperand(a, at), thread_rank() / 32 % 4 * 16, at);
    multiply_warpgroup(own, d, b, with, at);
}
template <int N, int K, class A, class B, class D, bool A_ACROSS, bool B_ACROSS, size_t ND>
static inline void wgmma(Register<4>* const (&d)[ND], const Register<4> (&a)[4], uint64_t b, WgmmaWith with,
                         SIMT_AT) {
    Wgmma<N, K, A, B, D, A_ACROSS, B_ACROSS> own;
    own.own_a = a;
    multiply_warpgroup(own, d, b, with, at);
}

// ---- groups of products

// A product is one operation of four warps: who waits for it waits until each of them has issued it, and
// knows then that all have read their operands.
struct Committed {
    uint32_t lanes[32];  // of each warp: its lanes' groups
};
constexpr unsigned committed_slot = 4, own_groups_slot = 102;  // of the block, of a thread
SIMT_NO_CHECK static inline uint32_t* committed_by_warpgroup() {
    auto* all = static_cast<Committed*>(block_slot(committed_slot, sizeof(Committed)));
    return all->lanes + thread_rank() / 128 * 4;
}
SIMT_NO_CHECK static inline bool all_issued(uint32_t groups) {
    const uint32_t* lanes = committed_by_warpgroup();
    for (int warp = 0; warp < 4; ++warp)
        if (lanes[warp] < 32 * groups) return false;
    return true;
}
SIMT_NO_CHECK static inline void wgmma_commit() {
    uint32_t* const lanes = committed_by_warpgroup();
    mbarrier_arrived(lanes);
    lanes[thread_rank() / 32 % 4]++;
    own_count(own_groups_slot, 1);
}
static inline void wgmma_wait(uint32_t newest) {
    const uint32_t groups = own_count(own_groups_slot);
    while (groups > newest && !all_issued(groups - newest)) spin();
    mbarrier_passed(committed_by_warpgroup());
}

}  // namespace ptx
}  // namespace simt
