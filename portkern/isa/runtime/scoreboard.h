// Which registers memory has not filled yet: what a wave may touch before it waits.
//
// Vector memory comes back in order; LDS does so too, but scalar loads come back in any order. CDNA
// counts stores among the loads; RDNA counts them by themselves, and nothing here waits for them.
// CDNA and RDNA3 count LDS and scalar loads together, RDNA4 each by itself. A value is there at once
// in these models, so only who looks at the counters sees that hardware might not have it yet.
#pragma once
#include <algorithm>
#include <cstring>

#include "wave.h"

namespace isa {

inline bool starts_with(const std::string& s, const char* p) { return s.rfind(p, 0) == 0; }
inline bool contains(const std::string& s, const char* p) { return s.find(p) != std::string::npos; }

// Whether other waves may order their accesses by it.
inline bool synchronises(const std::string& name) {
    if (contains(name, "_atomic")) return true;
    if (!starts_with(name, "ds_")) return false;
    for (const char* plain : {"read", "write", "load", "store", "permute", "swizzle", "nop"})
        if (contains(name, plain)) return false;
    return true;
}

// Cache operations are none: whether they are counted is not stated.
inline Access access_of(const std::string& name) {
    if (name == "s_wait_idle") return Access::wait_all;
    if (name == "s_waitcnt") return Access::wait;
    if (name == "s_waitcnt_vmcnt" || name == "s_wait_loadcnt") return Access::wait_loads;
    if (name == "s_waitcnt_lgkmcnt") return Access::wait_others;
    if (name == "s_wait_dscnt" || name == "s_wait_storecnt_dscnt") return Access::wait_local;
    if (name == "s_wait_kmcnt") return Access::wait_scalar;
    if (name == "s_wait_loadcnt_dscnt") return Access::wait_loads_local;
    // Of a split barrier the half behind which others may go on.
    if (name == "s_barrier" || starts_with(name, "s_barrier_signal")) return Access::barrier;
    if (starts_with(name, "ds_")) return name == "ds_nop" ? Access::none : Access::local;
    if (starts_with(name, "s_load") || starts_with(name, "s_buffer_load") ||
        starts_with(name, "s_memtime") || starts_with(name, "s_memrealtime") ||
        starts_with(name, "s_sendmsg_rtn"))
        return Access::scalar;
    if (!contains(name, "_load") && !contains(name, "_store") && !contains(name, "_atomic"))
        return Access::none;
    if (starts_with(name, "flat_")) return Access::flat;
    const bool memory = starts_with(name, "global_") || starts_with(name, "buffer_") ||
                        starts_with(name, "scratch_");
    return memory ? Access::vector : Access::none;
}

inline bool waits(Access access) { return access >= Access::wait; }

// The counts that a wait lets be outstanding: of vector memory, of LDS and of scalar loads.
struct Waited {
    static constexpr u32 ANY = 63;                     // the counters end there
    u32 vectors = ANY, locals = ANY, scalars = ANY;

    Waited(const Instruction& i, Access access, bool cdna) {
        const u32 imm = (u32)i.imm;
        switch (access) {
        case Access::wait:
            vectors = cdna ? (imm & 15) | (imm >> 14 & 3) << 4 : imm >> 10 & 63;
            locals = scalars = cdna ? imm >> 8 & 15 : imm >> 4 & 63;
            // The largest count of four bits is all that there can be.
            if (cdna && locals == 15) locals = scalars = ANY;
            break;
        case Access::wait_all: vectors = locals = scalars = 0; break;
        case Access::wait_loads: vectors = imm & 63; break;
        case Access::wait_others: locals = scalars = imm & 63; break;
        case Access::wait_local: locals = imm & 63; break;
        case Access::wait_scalar: scalars = imm & 63; break;
        case Access::wait_loads_local: vectors = imm >> 8 & 63, locals = imm & 63; break;
        default: break;
        }
    }
};

// Whether an access to vector memory is counted with the loads.
inline bool with_loads(const Instruction& i, bool cdna) { return cdna || i.destinations; }

// The registers that an instruction's result goes to; what is loaded straight into LDS has none.
inline u32 results(const Instruction& i) { return i.flags & TO_LDS ? 0 : i.destinations; }

// The first register of an instruction that memory has not filled; -1: none. Loads of one kind fill
// a register in their order.
template <class Board> i32 unfilled(const Board& board, const Instruction& i, Access access) {
    for (int n = 0; n < 6; ++n) {
        const Operand& o = i.o[n];
        if (n == 0 && (i.flags & TO_LDS)) continue;
        const bool filled = n < i.destinations && access != Access::none;
        for (u32 k = 0; k < o.count; ++k) {
            const u32 reg = o.reg + k;
            if (o.kind == Kind::vector) {
                const bool by_vector = board.by_vector(reg), by_local = board.by_local(reg);
                const bool other = access == Access::local ? by_vector : by_local;
                if (filled ? other : by_vector || by_local) return (i32)reg;
            }
            if (o.kind == Kind::scalar && reg < 128 && board.by_scalar(reg) && !filled)
                return (i32)reg;
        }
    }
    return -1;
}

class Scoreboard {
public:
    explicit Scoreboard(bool cdna) {
        memset(this, 0, sizeof *this);
        cdna_ = cdna;
    }

    // Before i is executed. What has no model may name registers that are not there.
    void before(Wave& w, const Instruction& i, Access access) {
        if (i.model == unmodelled || (access == Access::none && !pending())) return;
        if (waits(access)) return wait(Waited(i, access, cdna_));
        if (access == Access::barrier) {
            if (stored_ > local_done_) report(w, i, Finding::unwaited_lds, stored_);
            return;
        }
        if (pending())
            if (const i32 reg = unfilled(*this, i, access); reg >= 0)
                report(w, i, Finding::unwaited, (u32)reg);
        if (access == Access::none) return;
        if (access == Access::scalar) {
            any_scalar_ = true;
            for (u32 k = 0; k < i.o[0].count; ++k) scalar_[(i.o[0].reg + k) & 127] = true;
            return;
        }
        const bool vector = access != Access::local;
        if (vector && !with_loads(i, cdna_)) return;
        const u32 number = vector ? ++vector_ : ++local_;
        if (!vector && !i.destinations) stored_ = number;
        if (results(i)) (vector ? fills_vector_ : fills_local_) = number;
        for (u32 d = 0; d < results(i); ++d)
            for (u32 k = 0; k < i.o[d].count; ++k)
                (vector ? by_vector_ : by_local_)[i.o[d].reg + k] = number;
    }

    bool by_vector(u32 reg) const { return by_vector_[reg] > vector_done_; }
    bool by_local(u32 reg) const { return by_local_[reg] > local_done_; }
    bool by_scalar(u32 reg) const { return scalar_[reg]; }
    // The number of the last operation of vector memory, and whether one is known to be done.
    u32 vectors() const { return vector_; }
    bool done(u32 number) const { return number <= vector_done_; }

private:
    u32 vector_, vector_done_, local_, local_done_, stored_;
    u32 fills_vector_, fills_local_;                   // the last ones that fill a register
    u32 by_vector_[VECTORS], by_local_[VECTORS];
    bool scalar_[128], any_scalar_, cdna_;

    // Whether some register is not filled yet.
    bool pending() const {
        return fills_vector_ > vector_done_ || fills_local_ > local_done_ || any_scalar_;
    }

    void wait(Waited to) {
        if (vector_ > to.vectors) vector_done_ = std::max(vector_done_, vector_ - to.vectors);
        // Of those that are left, each may be one of LDS.
        if (local_ > to.locals) local_done_ = std::max(local_done_, local_ - to.locals);
        if (to.scalars == 0 && any_scalar_) memset(scalar_, 0, sizeof scalar_), any_scalar_ = false;
    }

    static void report(Wave& w, const Instruction& i, Finding kind, u32 reg) {
        w.machine->once(kind, w, i, reg);
    }
};

}  // namespace isa
