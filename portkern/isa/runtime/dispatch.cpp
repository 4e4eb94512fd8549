// A launch: groups and waves are started and take turns; the C interface.
//
// Groups run one after another, as far as they can. One that waits for another, as persistent
// kernels do, leaves its place while further groups are started beside it. A wave whose state comes
// back without any change of memory in between turns in circles; when all that could run do so, or
// wait at barriers, the launch hangs, and no number of further instructions would end it.
#include <algorithm>
#include <map>
#include <memory>

#include "counters.h"
#include "lanes.h"
#include "scoreboard.h"
#include "shadow.h"

namespace isa {

u32 missing_waits(const Program& program, const Table& table, u32 entry, Found* found, u32 most);
u32 missing_states(const Program& program, const Table& table, u32 entry, Found* found, u32 most);

namespace {

std::unordered_map<std::string, Model>& models() {
    static std::unordered_map<std::string, Model> all;
    return all;
}

constexpr u64 SLICE = 1 << 16;             // instructions of a wave between turns
constexpr u64 PATIENCE = 1 << 20;          // of a group, before anybody is suspected of waiting
constexpr u64 MOST_FINDINGS = 4096;
constexpr size_t RESIDENT_BYTES = 1ull << 30;  // of waves that wait for each other

}  // namespace

Registered::Registered(const char* name, Model model) { models()[name] = model; }
Model model_of(const std::string& name) {
    const auto found = models().find(name);
    return found == models().end() ? nullptr : found->second;
}
void unmodelled(Wave& w, const Instruction& i) {
    w.machine->stop(Finding::unmodelled, w, i.pc, 0, 0, i.name);
}

struct Launch {
    u32 grid[3], block[3];
    u32 lds, scratch, rsrc1, rsrc2, properties, preload_words, preload_offset, wave_size;
    u32 vectors, accumulators, entry, ids_in_ttmp, fnuz, checks;
    u64 kernarg, dispatch, base, limit;
    u64 quiet;     // instructions after which a group must have ended; 0: any number
    u64 resident;  // groups that the device has room for at once; 0: not known
};

namespace {

class Run {
public:
    Run(Machine& m, const Launch& a, Counter* counter) : m_(m), a_(a), counter_(counter) {
        threads_ = a.block[0] * a.block[1] * a.block[2];
        waves_ = (threads_ + a.wave_size - 1) / a.wave_size;
        total_ = (u64)a.grid[0] * a.grid[1] * a.grid[2];
        modes_ = m.program->sets_mode || (a.rsrc1 >> 12 & 0xff) != USUAL_MODE;
    }

    void all() {
        while (!m_.stopped) {
            while (groups_.size() < wanted_ && next_ < total_) start();
            if (groups_.empty()) return;
            if (!turn()) stuck();
            if (m_.executed >= a_.limit) give_up();
            if (a_.quiet && m_.executed - ended_at_ > a_.quiet) give_up();
        }
    }

private:
    Machine& m_;
    const Launch& a_;
    Counter* counter_;                                 // where there is something to count
    u32 threads_, waves_;
    bool modes_;                                       // whether some wave's may be another
    u64 total_, next_ = 0, since_end_ = 0, ended_at_ = 0;
    size_t wanted_ = 1;
    std::vector<std::unique_ptr<Group>> groups_;
    std::vector<Wave*> spare_;
    std::vector<std::unique_ptr<Wave>> owned_;

    Wave& wave() {
        if (spare_.empty()) {
            owned_.emplace_back(new Wave);  // not cleared: most kernels use few of its registers
            return *owned_.back();
        }
        Wave* w = spare_.back();
        spare_.pop_back();
        return *w;
    }

    void start() {
        auto g = std::make_unique<Group>();
        const u64 n = next_++;
        g->id[0] = (u32)(n % a_.grid[0]);
        g->id[1] = (u32)(n / a_.grid[0] % a_.grid[1]);
        g->id[2] = (u32)(n / a_.grid[0] / a_.grid[1]);
        g->lds.assign(a_.lds, 0xA5);       // LDS is not zero at the start
        if (m_.checks & RACES) g->shadow.resize(a_.lds);
        for (u32 k = 0; k < waves_; ++k) {
            Wave& w = wave();
            g->waves.push_back(&w);
            begin(w, *g, k);
        }
        groups_.push_back(std::move(g));
    }

    void begin(Wave& w, Group& g, u32 number) {
        memset(w.v, 0xCB, sizeof w.v[0] * a_.vectors);
        memset(w.v[256], 0xCB, sizeof w.v[0] * a_.accumulators);
        memset(w.s, 0xCB, sizeof w.s);
        w.machine = &m_, w.group = &g, w.number = number, w.size = a_.wave_size;
        w.done = w.at_barrier = w.yields = w.circles = false;
        w.scc = 0, w.executed = 0, w.branches = 0, w.mode = a_.rsrc1 >> 12 & 0xff;
        if (!a_.ids_in_ttmp) w.mode |= (a_.rsrc1 >> 21 & 1) << 8 | (a_.rsrc1 >> 23 & 1) << 9;
        w.snapshot.clear();
        w.synced = 1;
        if (counter_) counter_->begun();
        if (m_.checks & WAITS) w.board = std::make_shared<Scoreboard>(m_.program->cdna);
        w.index = m_.program->at[(a_.entry - m_.program->start) / 4];
        w.scratch_bytes = a_.scratch;
        w.scratch.assign((size_t)a_.scratch * LANES, 0xCB);
        w.set_pair(235, SHARED_APERTURE << 32), w.set_pair(237, PRIVATE_APERTURE << 32);
        w.set_pair(NOWHERE, 0);
        const u32 first = number * a_.wave_size, live = std::min(a_.wave_size, threads_ - first);
        w.set_pair(EXEC, live == 64 ? ~0ull : (1ull << live) - 1);
        w.set_pair(VCC, 0);
        for (u32 l = 0; l < a_.wave_size; ++l) {
            const u32 t = first + l, x = t % a_.block[0];
            const u32 y = t / a_.block[0] % a_.block[1], z = t / a_.block[0] / a_.block[1];
            w.v[0][l] = x | y << 10 | z << 20;
        }
        scalars(w, g);
    }

    // User registers in the order of the kernel descriptor's bits, then the group's numbers.
    void scalars(Wave& w, const Group& g) {
        u32 n = 0;
        const u32 p = a_.properties;
        const auto pair = [&](u64 x) { w.set_pair((int)n, x), n += 2; };
        if (p & 1) pair(0), pair(0);
        if (p & 2) pair(a_.dispatch);
        if (p & 4) pair(0);
        if (p & 8) pair(a_.kernarg);
        if (p & 16) pair(1);
        if (p & 32) pair(0);
        if (p & 64) w.s[n++] = a_.scratch;
        for (u32 k = 0; k < a_.preload_words && n < 16; ++k)
            memcpy(&w.s[n++], (const u8*)a_.kernarg + 4 * (a_.preload_offset + k), 4);
        n = a_.rsrc2 >> 1 & 31;
        if (a_.ids_in_ttmp) {
            w.s[TTMP + 9] = g.id[0];
            w.s[TTMP + 7] = (g.id[1] & 0xffff) | g.id[2] << 16;
            w.s[TTMP + 8] = w.number << 25;
            return;
        }
        for (int d = 0; d < 3; ++d)
            if (a_.rsrc2 >> (7 + d) & 1) w.s[n++] = g.id[d];
        if (a_.rsrc2 >> 10 & 1) w.s[n++] = 0;
        if (a_.rsrc2 & 1) w.s[n++] = 0;
    }

    bool idle(const Wave& w) const {
        return w.done || w.at_barrier || (w.circles && w.snapshot_changes == m_.changes);
    }

    // Each wave that can run runs a slice. False if none could.
    bool turn() {
        bool any = false;
        for (size_t k = 0; k < groups_.size() && !m_.stopped;) {
            Group& g = *groups_[k];
            u64 before = m_.executed;
            for (Wave* w : g.waves) {
                if (idle(*w) || m_.stopped) continue;
                any = true;
                w->yields = w->circles = false;
                if (m_.checks || modes_) go<true, true>(*w);
                else if (m_.watches) go<true, false>(*w);
                else go<false, false>(*w);
            }
            since_end_ += m_.executed - before;
            if (released(g)) any = true;
            const auto ended = [](const Wave* w) { return w->done; };
            if (!std::all_of(g.waves.begin(), g.waves.end(), ended)) {
                ++k;
                continue;
            }
            spare_.insert(spare_.end(), g.waves.begin(), g.waves.end());
            groups_.erase(groups_.begin() + (long)k);
            since_end_ = 0;
            ended_at_ = m_.executed;
            any = true;
        }
        if (m_.findings > MOST_FINDINGS) m_.stopped = true;
        if (since_end_ > PATIENCE) {
            m_.watches = true;
            if (since_end_ > 16 * PATIENCE) more(), since_end_ = PATIENCE + 1;
        }
        return any;
    }

    // Whether all waves of a group that are left had come to a barrier; ended ones do not count.
    static bool released(Group& g) {
        bool waits = false;
        for (const Wave* w : g.waves) {
            if (!w->done && !w->at_barrier) return false;
            waits |= !w->done;
        }
        if (waits) ++g.clock;
        for (Wave* w : g.waves) {
            w->at_barrier = false;
            if (waits) w->synced = g.clock;
        }
        return waits;
    }

    size_t room() const {
        const size_t registers = 4 * (2 * (vectors() + accumulators()) + 1024);
        const size_t wave = registers + (size_t)a_.scratch * LANES + a_.lds / waves_ * 17;
        return std::max<size_t>(RESIDENT_BYTES / wave / waves_, 1);
    }
    // Lets further groups in: each time twice as many, for all that wait look again each time.
    bool more() {
        const size_t device = a_.resident ? a_.resident : total_;
        const size_t most = std::min({device, room(), groups_.size() + (total_ - next_)});
        if (most <= groups_.size()) return false;
        wanted_ = std::min(most, 2 * groups_.size());
        return true;
    }

    // Nothing can run: a further group may be what is waited for.
    void stuck() {
        if (more()) return;
        Wave* told = nullptr;
        for (auto& g : groups_)
            for (Wave* w : g->waves)
                if (!w->done && (!told || (w->circles && !told->circles))) told = w;
        const bool left = next_ < total_;
        const bool fits = left && (!a_.resident || groups_.size() < a_.resident);
        const auto kind = fits                             ? Finding::room
                          : !left && told->circles && !whole(*told) ? Finding::in_step
                                                                    : Finding::hangs;
        end(kind, *told);
    }
    // Whether all lanes that the wave began with are on.
    bool whole(const Wave& w) const {
        const u32 live = std::min(a_.wave_size, threads_ - w.number * a_.wave_size);
        return w.exec() == (live == 64 ? ~0ull : (1ull << live) - 1);
    }

    void give_up() {
        for (auto& g : groups_)
            for (Wave* w : g->waves)
                if (!w->done) return end(Finding::limit, *w);
    }
    void end(Finding kind, Wave& w) {
        const Instruction& next = m_.program->code[w.index];
        m_.stop(kind, w, next.pc, 0, 0, next.name);
    }

    template <bool WATCHES, bool CHECKS> void go(Wave& w) {
        const Instruction* code = m_.program->code.data();
        u64 n = 0;
        while (n < SLICE && !w.done && !w.at_barrier && !w.yields) {
            const Instruction& i = code[w.index++];
            if (CHECKS) checked(w, i, (size_t)(&i - code));
            if (CHECKS && (w.mode & 0xff) != USUAL_MODE)
                m_.program->moded[(size_t)(&i - code)](w, i);
            else i.model(w, i);
            if (CHECKS && counter_) counter_->after(m_.program->access[(size_t)(&i - code)]);
            ++n;
            if (WATCHES && m_.watches && w.index < (u32)(&i - code) + 1) looked_at(w);
        }
        w.executed += n, m_.executed += n;
    }

    void checked(Wave& w, const Instruction& i, size_t at) {
        if (counter_) counter_->before(w, at);
        if (w.board) w.board->before(w, i, m_.program->access[at]);
        if (m_.program->orders[at]) meet(w);
    }

    // After a jump backwards. States are kept at powers of two, so that any circle is found.
    void looked_at(Wave& w) {
        const bool same = !w.snapshot.empty() && w.index == w.snapshot_index &&
                          w.snapshot_changes == m_.changes && equal(w);
        if (same) {
            w.circles = w.yields = true;
            return;
        }
        ++w.branches;
        if ((w.branches & (w.branches - 1)) == 0) keep(w);
    }

    static constexpr size_t SCALARS = 128;
    size_t vectors() const { return (size_t)a_.vectors * LANES; }
    size_t accumulators() const { return (size_t)a_.accumulators * LANES; }
    void keep(Wave& w) {
        w.snapshot.resize(SCALARS + 1 + vectors() + accumulators());
        u32* to = w.snapshot.data();
        memcpy(to, w.s, 4 * SCALARS);
        to[SCALARS] = w.scc;
        memcpy(to + SCALARS + 1, w.v, 4 * vectors());
        memcpy(to + SCALARS + 1 + vectors(), w.v[256], 4 * accumulators());
        w.snapshot_index = w.index, w.snapshot_changes = m_.changes;
    }
    bool equal(const Wave& w) const {
        const u32* from = w.snapshot.data();
        return from[SCALARS] == w.scc && !memcmp(from, w.s, 4 * SCALARS) &&
               !memcmp(from + SCALARS + 1, w.v, 4 * vectors()) &&
               !memcmp(from + SCALARS + 1 + vectors(), w.v[256], 4 * accumulators());
    }
};

}  // namespace
}  // namespace isa

using namespace isa;

// An instruction as Python reads it.
struct Described {
    u32 pc, words, name, flags, modelled, encoding;
};

extern "C" {

Table* isa_table(const char* text, u64 size) { return new Table({text, size}); }
const char* isa_name(const Table* t, u32 k) { return t->names[k].c_str(); }
const char* isa_encoding(const Table* t, u32 k) {
    return k < t->encodings.size() ? t->encodings[k].name.c_str() : "";
}
Program* isa_decode(const Table* t, const u8* image, u32 start, u32 size, u32 wave, u32 gfx90a) {
    return new Program(decode(*t, image, start, size, wave, gfx90a));
}
void isa_free(Program* p) { delete p; }
u64 isa_count(const Program* p) { return p->code.size(); }
const Instruction* isa_code(const Program* p) { return p->code.data(); }
u32 isa_instruction_bytes() { return sizeof(Instruction); }
void isa_describe(const Program* p, Described* out) {
    for (const Instruction& i : p->code)
        *out++ = {i.pc, i.words, i.name, i.flags, i.model != unmodelled, i.encoding};
}
// The waits and idle states that are missing on some path from an address on; a number of findings,
// at most 256.
u32 isa_missing_waits(const Program* p, const Table* t, u32 entry, Found* found) {
    const size_t place = (entry - p->start) / 4;
    if (entry < p->start || place >= p->at.size() || p->at[place] == ~0u) return 0;
    const u32 waits = missing_waits(*p, *t, p->at[place], found, 256);
    return waits + missing_states(*p, *t, p->at[place], found + waits, 256 - waits);
}
u32 isa_has_model(const char* name) { return model_of(name) != nullptr; }

// 0: the launch ended; 1: it was stopped, and the last finding says why. `hits` and `lanes`: where
// it is counted, zeros for each instruction.
u32 isa_run(const Program* p, const Launch* a, const Range* ranges, u32 count, Found* found,
            u32* findings, u64* executed, Totals* totals, u64* hits, u64* lanes) {
    Machine m;
    m.program = p, m.base = a->base, m.fnuz = a->fnuz;
    m.ieee = !a->ids_in_ttmp && a->rsrc1 >> 23 & 1;     // RDNA4 has no such mode
    m.vectors = a->vectors, m.accumulators = a->accumulators, m.checks = a->checks;
    m.ranges.assign(ranges, ranges + count);
    // Clamped NaNs are zeros, and what is too large for a half is infinite.
    const bool clamps = a->ids_in_ttmp || a->rsrc1 >> 21 & 1;
    if (!clamps || a->rsrc1 >> 26 & 1) {
        *found = {(u32)Finding::mode, a->entry, 0, 0, a->rsrc1 >> 12 & 0xffu, {0, 0, 0}, 0};
        *findings = 1, *executed = 0;
        return 1;
    }
    std::unique_ptr<Counter> counter;
    if (m.checks & COUNTS) {
        counter = std::make_unique<Counter>(*totals, hits, lanes);
        m.traffic = &counter->traffic;
    }
    Run(m, *a, counter.get()).all();
    *findings = (u32)std::min<u64>(m.found.size(), 256);
    std::copy_n(m.found.begin(), *findings, found);
    *executed = m.executed;
    return m.stopped;
}
}
