// PTX's warp instructions: shuffles, votes, barriers, ldmatrix, mma.sync; and special registers.
//
// A PTX warp has 32 lanes. Where the target's warps have 64, each half of one is a PTX warp.
#pragma once
#include "loads.h"
#include "matrix.h"
#include "ptx_memory.h"

namespace simt {

// Bytes of dynamic shared memory of the running launch.
SIMT_API size_t dynamic_shared_bytes();

namespace ptx {

static inline uint32_t lane() { return thread_rank() & 31; }
static inline int half() { return lane_id() & 32; }  // 32 in the upper half of a 64-lane warp
static inline Lanes lanes(uint32_t mask) { return named((Mask)mask << half()); }

// ---- special registers -------------------------------------------------------------------

static inline uint32_t lanemask_lt() { return (1u << lane()) - 1; }
static inline uint32_t lanemask_le() { return 2u * (1u << lane()) - 1; }
static inline uint32_t block_rank() {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}
static inline uint32_t multiprocessors() { return facts.units ? facts.units : 1; }
static inline uint32_t warps() { return (block->threads + 31) / 32; }

// ---- shuffles, votes, barriers -----------------------------------------------------------

struct Shuffled {
    uint32_t value;
    bool inside;  // the source lane was within the segment
};

enum class Mode { idx, up, down, bfly };
// `c` holds a segment mask in bits 8 to 12 and a clamp in bits 0 to 4 ("shfl.sync", PTX ISA).
template <Mode MODE>
static inline Shuffled shfl(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, SIMT_AT) {
    const int own = (int)lane(), segment = c >> 8 & 31, clamp = c & 31, by = b & 31;
    const int last = (own & segment) | (clamp & ~segment), first = own & segment;
    const int source = MODE == Mode::idx    ? first | (by & ~segment)
                       : MODE == Mode::up   ? own - by
                       : MODE == Mode::down ? own + by
                                            : own ^ by;
    const bool inside = MODE == Mode::up ? source >= last : source <= last;
    const int from = (inside ? source : own) + half();
    return {shuffle_from<(int)MODE>(lanes(mask), a, from, at), inside};
}

static inline uint32_t ballot(bool p, uint32_t mask, SIMT_AT) {
    return (uint32_t)(simt::vote(lanes(mask), p, at) >> half());
}
static inline bool vote_any(bool p, uint32_t mask, SIMT_AT) {
    return simt::vote(lanes(mask), p, at) != 0;
}
static inline bool vote_all(bool p, uint32_t mask, SIMT_AT) {
    return simt::vote(lanes(mask), !p, at) == 0;
}
static inline bool vote_uni(bool p, uint32_t mask, SIMT_AT) {
    return match_all(lanes(mask), (uint32_t)p, at) != 0;
}
template <class T>
static inline uint32_t match_any_sync(T a, uint32_t mask, SIMT_AT) {
    return (uint32_t)(match_any(lanes(mask), a, at) >> half());
}
template <class T>
static inline uint32_t match_all_sync(T a, uint32_t mask, bool& all, SIMT_AT) {
    const Mask same = match_all(lanes(mask), a, at);
    all = same != 0;
    return (uint32_t)(same >> half());
}
template <class Op, class T>
static inline T redux(T a, uint32_t mask, SIMT_AT) {
    return warp_reduce<Op>(lanes(mask), a, at);
}
// The leader: the lowest lane of those that meet.
static inline uint32_t elect(uint32_t mask, bool& leads, SIMT_AT) {
    const uint32_t leader = (uint32_t)__builtin_ctz(ballot(true, mask, at) | 1u << 31);
    leads = leader == lane();
    return leader;
}
static inline uint32_t activemask(SIMT_AT) { return (uint32_t)(active_mask(at) >> half()); }

// Of all threads, barrier 0 is __syncthreads().
static inline void bar_sync(uint32_t id, uint32_t count = 0, SIMT_AT) {
    if (id == 0 && count == 0) block_barrier(at);
    else named_barrier(id, count, true, at);
}
static inline void bar_arrive(uint32_t id, uint32_t count, SIMT_AT) {
    named_barrier(id, count, false, at);
}
static inline void bar_warp_sync(uint32_t mask, SIMT_AT) { warp_barrier(lanes(mask), at); }
// What those that meet at a named barrier bring. Its next round may begin before all have read this one's,
// so rounds take turns.
struct Ballot {
    uint32_t count, voters, readers;
};
constexpr unsigned ballot_slot = 3, ballot_round_slot = 101;  // of the block, of a thread
SIMT_NO_CHECK static inline Ballot& ballot_of(uint32_t id, bool next) {
    auto* rounds = static_cast<uint8_t*>(thread_slot(ballot_round_slot, 16)) + id;
    auto* ballots = static_cast<Ballot*>(block_slot(ballot_slot, 2 * 16 * sizeof(Ballot)));
    return ballots[2 * id + ((*rounds += next) & 1)];
}
SIMT_NO_CHECK static inline void bring_vote(uint32_t id, bool p) {
    Ballot& b = ballot_of(id, true);
    b.count += p;
    b.voters++;
}
SIMT_NO_CHECK static inline Votes read_votes(uint32_t id) {
    Ballot& b = ballot_of(id, false);
    const Votes votes = {b.count, b.count == b.voters, b.count > 0};
    if (++b.readers == b.voters) b = {};
    return votes;
}
static inline Votes bar_red(uint32_t id, uint32_t count, bool p, SIMT_AT) {
    if (id == 0 && count == 0) return block_vote(p, at);
    if (id < 16) bring_vote(id, p);
    named_barrier(id, count, true, at);
    return read_votes(id);
}

[[noreturn]] static inline void trap(const char* what, SIMT_AT) { fatal(408, at, "%s", what); }

// ---- ldmatrix, stmatrix, movmatrix -------------------------------------------------------

// 8 × 8 matrices of 16-bit elements. Lane 8m + r holds the address of row r of matrix m; element
// (r, c) is in lane 4r + c / 2, in half c % 2 of register m. `trans` exchanges r and c.
struct Row {
    uint16_t at[8];
};
struct MatrixLane {
    Row row;
    uint32_t element[4];
    Site at;
};
// The number of a group's first lane; reports a group that is not whole.
SIMT_NO_CHECK inline int first_of_warp(MatrixLane* const* own, Mask present) {
    const int least = __builtin_ctzll(present), here = __builtin_popcountll(present);
    if (SIMT_UNLIKELY(here != 32))
        finding(306, own[least]->at, "matrices moved by 32 lanes of which only %d take part", here);
    return least & ~31;
}
template <int N, bool TRANS>
SIMT_NO_CHECK inline void spread_rows(MatrixLane* const* own, Mask present) {
    const int first = first_of_warp(own, present);
    for (Mask m = present; m; m &= m - 1) {
        const int l = __builtin_ctzll(m) - first;
        for (int i = 0; i < 2 * N; ++i) {
            const int major = l / 4, minor = l % 4 * 2 + i % 2;
            const int r = TRANS ? minor : major, c = TRANS ? major : minor;
            const MatrixLane* source = own[first + i / 2 * 8 + r];
            const uint32_t value = source ? source->row.at[c] : 0xffff;
            uint32_t& to = own[first + l]->element[i / 2];
            to = i % 2 ? to | value << 16 : value;
        }
    }
}
template <int N, bool TRANS>
SIMT_NO_CHECK inline void gather_rows(MatrixLane* const* own, Mask present) {
    const int first = first_of_warp(own, present);
    for (Mask m = present; m; m &= m - 1) {
        const int l = __builtin_ctzll(m) - first;
        for (int c = 0; c < 8 && l < 8 * N; ++c) {
            const int major = TRANS ? c : l % 8, minor = TRANS ? l % 8 : c;
            const MatrixLane* source = own[first + 4 * major + minor / 2];
            const uint32_t value = source ? source->element[l / 8] : ~0u;
            own[first + l]->row.at[c] = (uint16_t)(value >> minor % 2 * 16);
        }
    }
}
// All 32 lanes must take part.
SIMT_NO_CHECK static inline void meet_as_warp(MatrixLane& own,
                                              void (*complete)(MatrixLane* const*, Mask), Site at) {
    own.at = at;
    together(matrix::group(32), own, complete, at);
}

using RowVector = Vector<uint16_t, 8>;
template <int N, bool TRANS>
SIMT_INLINE void ldmatrix(Register<4>* const (&d)[N], const char* row, SIMT_AT) {
    MatrixLane own = {};
    if (lane() < 8 * N) own.row = punned<Row>(ld<RowVector>(row, at));
    meet_as_warp(own, spread_rows<N, TRANS>, at);
    for (int i = 0; i < N; ++i) d[i]->bits = own.element[i];
}
template <int N, bool TRANS>
SIMT_INLINE void stmatrix(char* row, const Register<4> (&s)[N], SIMT_AT) {
    MatrixLane own = {};
    for (int i = 0; i < N; ++i) own.element[i] = s[i].bits;
    meet_as_warp(own, gather_rows<N, TRANS>, at);
    if (lane() < 8 * N) st<RowVector>(row, punned<RowVector>(own.row), at);
}
// Row r of the transposed matrix ends up in the lanes that held row r.
SIMT_NO_CHECK inline void transpose(MatrixLane* const* own, Mask present) {
    gather_rows<1, false>(own, present);
    spread_rows<1, true>(own, present);
}
static inline uint32_t movmatrix(uint32_t a, SIMT_AT) {
    MatrixLane own = {};
    own.element[0] = a;
    meet_as_warp(own, transpose, at);
    return own.element[0];
}

// ---- mma.sync ----------------------------------------------------------------------------

template <int M, int N, int K, class A, class B, class C, class D>
struct Mma {
    static constexpr int lanes = 32;
    using Compute = typename matrix::Traits<A>::Compute;
    using Numbers = matrix::Numbers<Compute, M, N, K>;
    const void *a, *b, *c;
    void* d;
    bool saturate;
    Site at;

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        for (int i = 0; i < M * K / 32; ++i) {
            const auto p = matrix::tall<M, K, matrix::per_register<A>>(lane, i);
            n.a[0][p.inner][p.outer] = matrix::Traits<A>::get(a, i);
        }
        for (int i = 0; i < K * N / 32; ++i) {
            const auto p = matrix::flat<N, K, matrix::per_register<B>>(lane, i);
            n.b[0][p.inner][p.outer] = matrix::Traits<B>::get(b, i);
        }
        matrix::give_sums<C>(n.c[0], c, lane);
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        matrix::take_sums<D>(n.c[0], d, lane, saturate);
    }
};

// Registers of a lane hold their elements as the PTX ISA's figures show.
template <int M, int N, int K, class A, class B, class C, class D, size_t W, size_t ND, size_t NA,
          size_t NB, size_t NC>
static inline void mma(Register<W>* const (&d)[ND], const Register<W> (&a)[NA],
                       const Register<W> (&b)[NB], const Register<W> (&c)[NC],
                       bool saturate = false, SIMT_AT) {
    Register<W> out[ND];
    Mma<M, N, K, A, B, C, D> own = {a, b, c, out, saturate, at};
    matrix::multiply(own);
    for (size_t i = 0; i < ND; ++i) *d[i] = out[i];
}

}  // namespace ptx
}  // namespace simt
