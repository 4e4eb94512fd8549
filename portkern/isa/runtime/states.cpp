// Idle states that CDNA asks for between some instructions, and has no interlock for: `s_nop`s, or
// others that happen to stand there. Rules of AMD's manuals, and of LLVM's tables where those are
// silent; of matrix instructions the least that any chip asks for, as each shape has its own. RDNA
// waits by itself but in two cases.
#include "paths.h"

namespace isa {
namespace {

constexpr u8 LONG_AGO = 32;

bool any_of(const std::string& name, std::initializer_list<const char*> starts) {
    return std::any_of(starts.begin(), starts.end(),
                       [&](const char* s) { return starts_with(name, s); });
}

// What an instruction is, as far as the rules ask.
struct Sort {
    bool vector = false, matrix = false, doubles = false, function = false, partial = false;
    bool lane = false, picks_lane = false, buffer = false, memory = false, wide_store = false;
    bool div_fmas = false, sets_exec = false, keeps_sum = false;
    bool reads_result = false;  // it adds to it, swaps it, or writes a part of it
    u8 passes = 0;             // of a matrix instruction, at least
    u32 idle = 1;              // the states it is itself

    Sort() = default;
    Sort(const Instruction& i, const std::string& name, const std::string& encoding, bool gfx90a) {
        matrix = starts_with(name, "v_mfma") || starts_with(name, "v_smfmac");
        vector = starts_with(name, "v_");
        doubles = contains(name, "mfma_f64");
        passes = contains(name, "4x4x") ? 2 : contains(name, "16x16x") ? 4 : 8;
        if (gfx90a && passes > 2) passes *= 2;
        // Later chips keep a sum that it reads only of those with narrow factors.
        const size_t n = name.size();
        keeps_sum = matrix && !doubles && (gfx90a || n < 4 || name.compare(n - 4, 4, "_f32"));
        function = any_of(name, {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"});
        partial = i.flags & SDWA ? i.dst_part != 6 : vector && i.opsel >> 3 & 1;
        lane = any_of(name, {"v_readlane", "v_readfirstlane", "v_writelane"});
        picks_lane = any_of(name, {"v_readlane", "v_writelane"});
        buffer = encoding == "MUBUF" || encoding == "MTBUF";
        const bool global = encoding == "FLAT" || encoding == "GLOBAL" || encoding == "SCRATCH";
        memory = buffer || global || encoding == "DS";
        div_fmas = starts_with(name, "v_div_fmas");
        // Of a dual one the sum is an operand.
        reads_result = any_of(name, {"v_fmac_", "v_mac_", "v_pk_fmac_", "v_dot2c_", "v_dot2acc_",
                                     "v_dot4c_", "v_dot8c_", "v_swap", "v_writelane", "v_fma_mixlo",
                                     "v_fma_mixhi", "v_mad_mixlo", "v_mad_mixhi"}) ||
                       leaves_lanes(i);
        sets_exec = starts_with(name, "v_cmpx");
        const Operand& data = i.o[buffer ? 0 : 2];
        const bool stores = contains(name, "_store") || contains(name, "_atomic");
        wide_store = stores && (buffer || global) && data.kind == Kind::vector && data.count > 2 &&
                     !(buffer && i.o[3].kind == Kind::scalar);
        if (name == "s_nop") idle = ((u32)i.imm & 15) + 1;
    }

    int first_source(const Instruction& i) const { return reads_result ? 0 : i.destinations; }

private:
    // Lanes that DPP does not write though EXEC would have it.
    static bool leaves_lanes(const Instruction& i) {
        return i.flags & DPP &&
               (i.row_mask != 15 || i.bank_mask != 15 || !(i.flags & (BOUND_ZERO | DPP8)));
    }
};

// What was done to a register: how many states ago, and for how many more it must be left alone.
struct Since {
    u8 vector[VECTORS], function[VECTORS], partial[VECTORS], stored[VECTORS];
    u8 scalar[128];            // by the vector unit
    struct Left {
        u8 matrix[VECTORS];    // until the result of a matrix instruction is there
        u8 summed[VECTORS];    // until one has read it as its sum
    } left;

    Since() {
        memset(this, LONG_AGO, sizeof *this);
        memset(&left, 0, sizeof left);
    }
    // Of what is left the most counts, of what is long ago the latest.
    bool meet(const Since& other) {
        bool changed = false;
        u8 *mine = (u8*)this, *end = mine + sizeof *this;
        const u8* theirs = (const u8*)&other;
        for (const u8* low = (const u8*)&left; mine != end; ++mine, ++theirs)
            if (mine >= low ? *theirs > *mine : *theirs < *mine) *mine = *theirs, changed = true;
        return changed;
    }
    void pass(u32 states) {
        u8 *at = (u8*)this, *low = (u8*)&left, *end = at + sizeof *this;
        for (; at != low; ++at) *at = (u8)std::min<u32>(*at + states, LONG_AGO);
        for (; at != end; ++at) *at = (u8)(*at - std::min<u32>(*at, states));
    }
};

// Registers are there: of an instruction that names others the decoder says that it is unmodelled,
// and nothing is asked of it here.
class Rules {
public:
    Rules(const Program& program, const Table& table) : program_(program) {
        for (const Instruction& i : program.code) {
            const bool known = i.encoding < table.encodings.size();
            sorts_.emplace_back(i, table.names[i.name], known ? table.encodings[i.encoding].name : "",
                                program.gfx90a);
        }
    }

    // The first register that is used too soon, or -1.
    i32 broken(u32 at, const Since& since) const {
        const Instruction& i = program_.code[at];
        const Sort& s = sorts_[at];
        const bool newer = !program_.gfx90a;           // gfx940 and later ask for more
        if (!s.vector && !s.memory) return -1;
        const auto soon = [](u8 age, u32 needed) { return age < needed; };
        if (s.div_fmas && (soon(since.scalar[VCC], 4) || soon(since.scalar[VCC + 1], 4))) return VCC;
        const u32 for_exec = i.flags & DPP ? 5 : s.matrix || (s.lane && newer) ? 4 : 0;
        if (soon(since.scalar[EXEC], for_exec)) return EXEC;
        for (int n = s.first_source(i); n < 6; ++n) {
            const Operand& o = i.o[n];
            for (u32 k = 0; k < o.count; ++k) {
                const u32 reg = o.reg + k;
                if (o.kind == Kind::scalar && reg < 128) {
                    const u32 needed = s.buffer                                        ? 5
                                       : s.picks_lane && n == i.destinations + 1       ? 4
                                       : s.vector && newer                             ? 2
                                                                                       : 0;
                    if (soon(since.scalar[reg], needed)) return (i32)reg;
                }
                if (o.kind != Kind::vector) continue;
                const u32 needed = i.flags & DPP && o.dpp ? 2
                                   : s.matrix             ? 2
                                   : s.lane && newer && n >= i.destinations ? 1
                                                          : 0;
                if (soon(since.vector[reg], needed)) return (i32)reg;
                if (newer && s.vector && !s.function && soon(since.function[reg], 1)) return (i32)reg;
                if (newer && s.vector && soon(since.partial[reg], 1)) return (i32)reg;
                if ((!s.matrix || n < i.destinations + 2) && since.left.matrix[reg]) return (i32)reg;
            }
        }
        if (s.matrix) return -1;
        for (u32 d = 0; d < i.destinations; ++d) {
            const Operand& o = i.o[d];
            for (u32 k = 0; o.kind == Kind::vector && k < o.count; ++k) {
                const u32 reg = o.reg + k;
                if (s.vector && soon(since.stored[reg], newer ? 2 : 1)) return (i32)reg;
                if (since.left.matrix[reg] || since.left.summed[reg]) return (i32)reg;
            }
        }
        return -1;
    }

    void issue(u32 at, Since& since) const {
        const Instruction& i = program_.code[at];
        const Sort& s = sorts_[at];
        const u8 result = (u8)(s.doubles ? 6 : s.passes + (program_.gfx90a ? 3 : 2));
        since.pass(s.idle);
        if (s.sets_exec) since.scalar[EXEC] = since.scalar[EXEC + 1] = 0;
        if (s.wide_store) {
            const Operand& data = i.o[s.buffer ? 0 : 2];
            for (u32 k = 0; k < data.count; ++k) since.stored[data.reg + k] = 0;
        }
        const Operand& sum = i.o[3];
        for (u32 k = 0; s.keeps_sum && sum.kind == Kind::vector && k < sum.count; ++k) {
            u8& left = since.left.summed[sum.reg + k];
            left = std::max(left, (u8)(s.passes - 1));
        }
        for (u32 d = 0; d < i.destinations; ++d)
            for (u32 k = 0; k < i.o[d].count; ++k) {
                const u32 reg = i.o[d].reg + k;
                if (i.o[d].kind == Kind::scalar && reg < 128) since.scalar[reg] = s.vector ? 0 : LONG_AGO;
                if (i.o[d].kind != Kind::vector) continue;
                since.vector[reg] = s.vector && !s.matrix ? 0 : LONG_AGO;
                since.function[reg] = s.function ? 0 : LONG_AGO;
                since.partial[reg] = s.partial ? 0 : LONG_AGO;
                since.left.matrix[reg] = s.matrix ? result : 0;
            }
    }

private:
    const Program& program_;
    std::vector<Sort> sorts_;
};

// Of RDNA: the vector instructions since a function (exp, rcp ...) gave each register, the fewest of
// all paths with no function among them and of those with one; whether the last instruction was a
// product of matrices that gave it.
struct Lately {
    u8 vectors[2][VECTORS], product[VECTORS];

    Lately() { forget(), memset(product, 0, sizeof product); }
    void forget() { memset(vectors, LONG_AGO, sizeof vectors); }
    bool meet(const Lately& other) {
        const Lately before = *this;
        for (int r = 0; r < VECTORS; ++r) {
            for (int f = 0; f < 2; ++f) vectors[f][r] = std::min(vectors[f][r], other.vectors[f][r]);
            product[r] = std::max(product[r], other.product[r]);
        }
        return memcmp(this, &before, sizeof before) != 0;
    }
    void pass(bool function) {
        const auto older = [](u8 age) { return (u8)(age < 5 ? age + 1 : LONG_AGO); };
        for (int r = 0; r < VECTORS; ++r) {
            const u8 none = older(vectors[0][r]), one = older(vectors[1][r]);
            vectors[0][r] = function ? LONG_AGO : none;
            vectors[1][r] = function ? none : one;
        }
        memset(product, 0, sizeof product);
    }
    bool late(u32 reg) const { return std::min(vectors[0][reg], vectors[1][reg]) != LONG_AGO; }
};

// RDNA3 may read the old value of what a function gives within five vector instructions and one
// function, if no access to memory or wait for vector results lies in between. A product must not
// take its factors from the one right before it.
class NarrowRules {
public:
    NarrowRules(const Program& program, const Table& table)
        : program_(program), functions_late_(!table.rdna4) {
        for (const Instruction& i : program.code) {
            const std::string& name = table.names[i.name];
            sorts_.emplace_back(i, name, "", false);
            sorts_.back().matrix = contains(name, "wmma");
            // What goes to memory, or empties a cache, leaves when vector results are there.
            ready_.push_back(any_of(name, {"buffer_", "global_", "flat_", "scratch_", "ds_"}) ||
                             (name == "s_waitcnt_depctr" && (i.imm >> 12 & 15) == 0));
        }
    }

    i32 broken(u32 at, const Lately& lately) const {
        const Instruction& i = program_.code[at];
        const Sort& s = sorts_[at];
        for (int n = s.first_source(i); s.vector && n < 6; ++n) {
            const Operand& o = i.o[n];
            for (u32 k = 0; o.kind == Kind::vector && k < o.count; ++k) {
                const u32 reg = o.reg + k;
                if (functions_late_ && lately.late(reg)) return (i32)reg;
                if (s.matrix && n < i.destinations + 2 && lately.product[reg]) return (i32)reg;
            }
        }
        return -1;
    }

    void issue(u32 at, Lately& lately) const {
        const Instruction& i = program_.code[at];
        const Sort& s = sorts_[at];
        if (ready_[at]) lately.forget();
        if (!s.vector) return;
        // Both halves of a dual instruction leave at once.
        const bool last = at + 1 >= program_.code.size() || program_.code[at + 1].pc != i.pc;
        if (last) lately.pass(s.function);
        for (u32 d = 0; d < i.destinations; ++d)
            for (u32 k = 0; i.o[d].kind == Kind::vector && k < i.o[d].count; ++k) {
                const u32 reg = i.o[d].reg + k;
                lately.vectors[0][reg] = s.function ? 0 : LONG_AGO;
                lately.vectors[1][reg] = LONG_AGO;
                lately.product[reg] = s.matrix;
            }
    }

private:
    const Program& program_;
    const bool functions_late_;
    std::vector<Sort> sorts_;
    std::vector<bool> ready_;
};

}  // namespace

// What uses something too soon from the instruction with this number on, at most `most`.
u32 missing_states(const Program& program, const Table& table, u32 entry, Found* found, u32 most) {
    Told told(program, found, most);
    if (!program.cdna) {
        const NarrowRules rules(program, table);
        over_paths<Lately>(program, table, entry, [&](u32 at, Lately& lately) {
            if (const i32 reg = rules.broken(at, lately); reg >= 0)
                told.report(at, Finding::too_soon, (u32)reg);
            rules.issue(at, lately);
        });
        return told.count();
    }
    const Rules rules(program, table);
    over_paths<Since>(program, table, entry, [&](u32 at, Since& since) {
        if (const i32 reg = rules.broken(at, since); reg >= 0)
            told.report(at, Finding::too_soon, (u32)reg);
        rules.issue(at, since);
    });
    return told.count();
}

}  // namespace isa
