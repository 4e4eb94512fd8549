// Which registers memory has not filled yet: what a wave may touch before it waits.
//
// CDNA's counters. Vector memory comes back in order; LDS does so too, but scalar loads share its
// counter and come back in any order. A value is there at once in these models, so only who looks at
// the counters sees that hardware might not have it yet.
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
    if (name == "s_waitcnt") return Access::wait;
    if (name == "s_barrier") return Access::barrier;
    if (starts_with(name, "ds_")) return name == "ds_nop" ? Access::none : Access::local;
    if (starts_with(name, "s_load") || starts_with(name, "s_buffer_load") ||
        starts_with(name, "s_memtime") || starts_with(name, "s_memrealtime"))
        return Access::scalar;
    if (!contains(name, "_load") && !contains(name, "_store") && !contains(name, "_atomic"))
        return Access::none;
    if (starts_with(name, "flat_")) return Access::flat;
    const bool memory = starts_with(name, "global_") || starts_with(name, "buffer_") ||
                        starts_with(name, "scratch_");
    return memory ? Access::vector : Access::none;
}

// The counts that s_waitcnt lets be outstanding: of vector memory, and of LDS and scalar loads.
struct Waited {
    u32 vectors, others;
    explicit Waited(const Instruction& i)
        : vectors((i.imm & 15) | (i.imm >> 14 & 3) << 4), others(i.imm >> 8 & 15) {}
};

// The first register of an instruction that memory has not filled; -1: none. Loads of one kind fill
// a register in their order.
template <class Board> i32 unfilled(const Board& board, const Instruction& i, Access access) {
    for (int n = 0; n < 6; ++n) {
        const Operand& o = i.o[n];
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
    Scoreboard() { memset(this, 0, sizeof *this); }

    // Before i is executed. What has no model may name registers that are not there.
    void before(Wave& w, const Instruction& i, Access access) {
        if (i.model == unmodelled) return;
        if (access == Access::wait) return wait(Waited(i));
        if (access == Access::barrier) {
            if (stored_ > local_done_ || dma_ > vector_done_)
                report(w, i, Finding::unwaited_lds, stored_ > local_done_ ? stored_ : dma_);
            return;
        }
        if (const i32 reg = unfilled(*this, i, access); reg >= 0)
            report(w, i, Finding::unwaited, (u32)reg);
        if (access == Access::none) return;
        if (access == Access::scalar) {
            for (u32 k = 0; k < i.o[0].count; ++k) scalar_[(i.o[0].reg + k) & 127] = true;
            return;
        }
        const bool vector = access != Access::local;
        const u32 number = vector ? ++vector_ : ++local_;
        if (i.flags & TO_LDS) dma_ = number;
        if (!vector && !i.destinations) stored_ = number;
        for (u32 d = 0; d < i.destinations; ++d)
            for (u32 k = 0; k < i.o[d].count; ++k)
                (vector ? by_vector_ : by_local_)[i.o[d].reg + k] = number;
    }

    bool by_vector(u32 reg) const { return by_vector_[reg] > vector_done_; }
    bool by_local(u32 reg) const { return by_local_[reg] > local_done_; }
    bool by_scalar(u32 reg) const { return scalar_[reg]; }

private:
    u32 vector_, vector_done_, local_, local_done_, stored_, dma_;
    u32 by_vector_[VECTORS], by_local_[VECTORS];
    bool scalar_[128];

    void wait(Waited to) {
        if (vector_ > to.vectors) vector_done_ = std::max(vector_done_, vector_ - to.vectors);
        // Of those that are left, each may be one of LDS.
        if (local_ > to.others) local_done_ = std::max(local_done_, local_ - to.others);
        if (to.others == 0) memset(scalar_, 0, sizeof scalar_);
    }

    static void report(Wave& w, const Instruction& i, Finding kind, u32 reg) {
        w.machine->once(kind, w, i, reg);
    }
};

}  // namespace isa
