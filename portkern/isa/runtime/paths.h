// What holds on all paths of a kernel's code, whether a launch comes by or not.
#pragma once
#include <deque>

#include "scoreboard.h"

namespace isa {

enum class Flow : u8 { on, jump, either, end, call };

inline Flow flow_of(const std::string& name) {
    if (name == "s_branch") return Flow::jump;
    if (starts_with(name, "s_cbranch")) return Flow::either;
    if (starts_with(name, "s_endpgm") || name == "s_setpc_b64" || name == "s_code_end")
        return Flow::end;
    return name == "s_swappc_b64" || starts_with(name, "s_call") ? Flow::call : Flow::on;
}

// Of instructions that are looked at; a stranger's jumps may make any graph.
constexpr u64 MOST_STEPS = 1 << 24;

// Calls step(number, state) for instructions in the order of each path from `entry` on, until no
// state changes any more: State() is what nothing is known of, and meet() joins two of them and
// says whether the first changed.
template <class State, class Step>
void over_paths(const Program& program, const Table& table, u32 entry, Step step) {
    const size_t count = program.code.size();
    std::vector<Flow> flow(count);
    std::vector<bool> begins(count);
    for (size_t k = 0; k < count; ++k) {
        flow[k] = flow_of(table.names[program.code[k].name]);
        const bool jumps = flow[k] == Flow::jump || flow[k] == Flow::either;
        if (jumps && program.code[k].imm >= 0) begins[(size_t)program.code[k].imm] = true;
    }
    std::unordered_map<u32, State> known;              // at the beginnings of blocks
    std::deque<u32> left{entry};
    known.emplace(entry, State());
    u64 steps = 0;
    const auto reach = [&](u32 at, const State& state) {
        const auto [place, is_new] = known.emplace(at, state);
        if (is_new || place->second.meet(state)) left.push_back(at);
    };
    while (!left.empty() && steps < MOST_STEPS) {
        u32 at = left.front();
        left.pop_front();
        State state = known.at(at);
        for (;; ++at, ++steps) {
            const Instruction& i = program.code[at];
            // What an unknown one touches is not known.
            if (i.model == unmodelled && flow[at] != Flow::end) state = State();
            else step(at, state);
            const Flow next = flow[at];
            const bool jumps = next == Flow::jump || next == Flow::either;
            if (jumps && i.imm >= 0) reach((u32)i.imm, state);
            // Functions wait for all that is theirs before they return.
            if (next == Flow::call) state = State();
            if (next == Flow::end || next == Flow::jump || at + 1 >= count) break;
            if (begins[at + 1]) {
                reach(at + 1, state);
                break;
            }
        }
    }
}

// Findings in the order in which they are met, one for each instruction.
class Told {
public:
    Told(const Program& program, Found* found, u32 most)
        : program_(program), found_(found), most_(most), told_(program.code.size()) {}

    u32 count() const { return count_; }
    void report(u32 at, Finding kind, u32 reg) {
        const Instruction& i = program_.code[at];
        if (told_[at] || count_ == most_) return;
        told_[at] = true;
        found_[count_++] = {(u32)kind, i.pc, 0, 0, reg, {0, 0, 0}, i.name};
    }

private:
    const Program& program_;
    Found* found_;
    u32 most_, count_ = 0;
    std::vector<bool> told_;
};

}  // namespace isa
