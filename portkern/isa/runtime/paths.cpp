// Waits that are missing on some path of a kernel's code, whether a launch comes by or not: the rules
// of the scoreboard, over the graph of the code's jumps.
//
// In place of numbers a register has an age, the operations of its kind that were issued since the
// one that fills it. Where paths meet, the younger one counts.
#include "paths.h"

namespace isa {
namespace {

constexpr u8 FILLED = 255, OLDEST = 63;

struct Ages {
    u8 vector[VECTORS], local[VECTORS];
    u8 stored;                             // the last store to LDS
    bool scalar[128];

    Ages() {
        memset(this, FILLED, sizeof *this);
        memset(scalar, 0, sizeof scalar);
    }
    bool by_vector(u32 reg) const { return vector[reg] != FILLED; }
    bool by_local(u32 reg) const { return local[reg] != FILLED; }
    bool by_scalar(u32 reg) const { return scalar[reg]; }

    // Whether anything became younger.
    bool meet(const Ages& other) {
        bool changed = false;
        const auto younger = [&](u8& mine, u8 theirs) {
            if (theirs < mine) mine = theirs, changed = true;
        };
        for (int r = 0; r < VECTORS; ++r)
            younger(vector[r], other.vector[r]), younger(local[r], other.local[r]);
        younger(stored, other.stored);
        for (int r = 0; r < 128; ++r)
            if (other.scalar[r] && !scalar[r]) scalar[r] = changed = true;
        return changed;
    }

    void wait(Waited to) {
        const auto done = [](u8& age, u32 left) {
            if (age >= left) age = FILLED;
        };
        for (int r = 0; r < VECTORS; ++r) done(vector[r], to.vectors), done(local[r], to.locals);
        done(stored, to.locals);
        if (to.scalars == 0) memset(scalar, 0, sizeof scalar);
    }

    void issue(const Instruction& i, Access access, bool cdna) {
        if (access == Access::none) return;
        if (access == Access::scalar) {
            for (u32 k = 0; k < i.o[0].count; ++k) scalar[(i.o[0].reg + k) & 127] = true;
            return;
        }
        const bool of_lds = access == Access::local;
        if (!of_lds && !with_loads(i, cdna)) return;
        u8* ages = of_lds ? local : vector;
        const auto older = [](u8& age) {
            if (age < OLDEST) ++age;
        };
        for (int r = 0; r < VECTORS; ++r) older(ages[r]);
        if (of_lds) older(stored);
        if (of_lds && !i.destinations) stored = 0;
        for (u32 d = 0; d < results(i); ++d)
            for (u32 k = 0; k < i.o[d].count; ++k) ages[i.o[d].reg + k] = 0;
    }
};

}  // namespace

// What is found from the instruction with this number on, at most `most`; the number of them.
u32 missing_waits(const Program& program, const Table& table, u32 entry, Found* found, u32 most) {
    Told told(program, found, most);
    over_paths<Ages>(program, table, entry, [&](u32 at, Ages& ages) {
        const Instruction& i = program.code[at];
        const Access access = program.access[at];
        if (waits(access)) {
            ages.wait(Waited(i, access, program.cdna));
        } else if (access == Access::barrier) {
            if (ages.stored != FILLED) told.report(at, Finding::unwaited_lds, 0);
        } else {
            const i32 reg = unfilled(ages, i, access);
            if (reg >= 0) told.report(at, Finding::unwaited, (u32)reg);
            ages.issue(i, access, program.cdna);
        }
    });
    return told.count();
}

}  // namespace isa
