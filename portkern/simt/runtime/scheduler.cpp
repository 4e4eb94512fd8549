// Fibers: which thread of a block runs, and when. A block belongs to one OS thread for its life.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "context.h"
#include "memory.h"

SIMT_TLS uint3 threadIdx, blockIdx;
SIMT_TLS dim3 blockDim, gridDim;
int warpSize = 32;

namespace simt {

SIMT_TLS Block* block;
constexpr unsigned polls_at_once = 64, turns_at_once = 128;
SIMT_TLS unsigned polls = polls_at_once, turns = turns_at_once;
Config config;
Facts facts = {};

namespace {

// Out of line: what runs each time that a thread waits then saves no registers for it.
#define SIMT_SELDOM __attribute__((noinline))

uint64_t draw(Context& c) {  // xorshift64
    uint64_t x = c.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return c.random = x;
}

unsigned warps_of(const Context& c) { return (c.threads + warpSize - 1) / warpSize; }

// ---- stacks

// Tops are shifted against each other: at the same offset in every stack, the switches' cache lines
// would all fall into one set (28 ns per switch instead of 8).
char* stack_top(const Context& c, int number) {
    char* end = c.stacks + (size_t)(number + 1) * c.stack_bytes;
    return end - 64 - ((number * 192) & 4032);
}

void fiber_main();

const Standing* take_stack(Context& c) {
    c.stack = c.free_stack[--c.free_stacks];
    if (c.free_stacks) {
        const char* soon = stack_top(c, c.free_stack[c.free_stacks - 1]);
        for (int line = 1; line < 5; ++line) __builtin_prefetch(soon - line * 64, 1);
    }
    c.fibers_made++;
    return prepare_stack(stack_top(c, c.stack), fiber_main);
}

void free_all_stacks(Context& c) {
    c.free_stacks = 0;
    for (int i = (int)c.stack_count - 1; i >= 0; --i) c.free_stack[c.free_stacks++] = (int16_t)i;
}

// ---- the ready threads

// Forward and reverse, a warp runs as far as it comes before another does: the stacks of its lanes
// fit the first-level cache, those of a block do not. A warp whose lane polls goes to the back.
bool by_warp() { return config.order == Order::forward || config.order == Order::reverse; }

void queue_warp(Context& c, unsigned warp) {
    if (c.queued >> warp & 1) return;
    c.queued |= uint64_t{1} << warp;
    if (warp == c.rank / (unsigned)warpSize) {  // it is running: it goes on
        c.turns[--c.first_turn % (2 * max_warps)] = (uint8_t)warp;
        c.warps[warp].before = (uint8_t)(c.rank % (unsigned)warpSize);
    } else {
        c.turns[c.last_turn++ % (2 * max_warps)] = (uint8_t)warp;
    }
}

// Their fibers, which may not be in a cache, are left as they are: is_ready() knows.
void push_of_warp(Context& c, unsigned warp, Mask lanes) {
    if (!lanes) return;
    c.warps[warp].ready |= lanes;
    c.tail += (unsigned)__builtin_popcountll(lanes);
    queue_warp(c, warp);
}

void push_ready(Context& c, Fiber& f) {
    f.state = State::ready;
    if (by_warp()) return push_of_warp(c, f.warp, bit(f.lane));
    if (config.order == Order::priority) c.warps[f.warp].ready |= bit(f.lane);
    c.ring[c.tail++ % max_threads] = (uint16_t)(&f - c.table);
}

bool is_ready(const Context& c, const Fiber& f) {
    return f.state == State::ready || c.warps[f.warp].ready & bit(f.lane);
}

// The next lane that is ready after the one that ran last, in the direction of the order.
unsigned next_lane(Mask ready, unsigned before) {
    if (config.order == Order::reverse) {
        const Mask below = ready & (bit(before) - 1);
        return 63 - (unsigned)__builtin_clzll(below ? below : ready);
    }
    const Mask above = ready & ~(bit(before) | (bit(before) - 1));
    return (unsigned)__builtin_ctzll(above ? above : ready);
}

// A block's fibers do not fit the first-level cache: what comes soon is fetched. Inlined, or it were
// dropped as a function without effect.
SIMT_INLINE void fetch(const Fiber* next) {
    __builtin_prefetch(config.order == Order::reverse ? next - 1 : next + 1);
    const char* soon = reinterpret_cast<const char*>(next->standing);
    for (int line = -1; line < 3; ++line) __builtin_prefetch(soon + 64 * line);
}

unsigned warp_at_turn(const Context& c) { return c.turns[c.first_turn % (2 * max_warps)]; }

SIMT_SELDOM unsigned next_warp(Context& c) {  // the first whose lanes are ready
    for (;;) {
        const unsigned warp = warp_at_turn(c);
        if (c.warps[warp].ready) return warp;
        ++c.first_turn;
        c.queued &= ~(uint64_t{1} << warp);
        // Next time, from its first lane on.
        c.warps[warp].before = config.order == Order::reverse ? 0 : 63;
    }
}

SIMT_INLINE Fiber* pop_by_warp(Context& c) {
    unsigned warp = warp_at_turn(c);
    if (SIMT_UNLIKELY(!c.warps[warp].ready)) warp = next_warp(c);
    Warp& w = c.warps[warp];
    const unsigned lane = next_lane(w.ready, w.before);
    w.ready &= ~bit(lane);
    w.before = (uint8_t)lane;
    ++c.head;
    Fiber* lanes = &c.table[warp * (size_t)warpSize];
    if (SIMT_LIKELY(w.ready)) fetch(&lanes[next_lane(w.ready, lane)]);
    return &lanes[lane];
}

// The warp goes behind all others that are ready.
void end_turn(Context& c, unsigned warp) {
    if (warp_at_turn(c) != warp) return;
    ++c.first_turn;
    c.turns[c.last_turn++ % (2 * max_warps)] = (uint8_t)warp;
}

Fiber* pop_priority(Context& c) {
    Warp* best = nullptr;
    for (unsigned w = 0, n = warps_of(c); w < n; ++w)
        if (c.warps[w].ready && (!best || c.warps[w].priority > best->priority)) best = &c.warps[w];
    // Any lane of that warp: lanes are independent.
    const Mask above = best->ready & (~Mask{0} << (draw(c) % 64));
    const unsigned lane = (unsigned)__builtin_ctzll(above ? above : best->ready);
    best->ready &= ~bit(lane);
    ++c.head;
    return &c.table[(best - c.warps) * (size_t)warpSize + lane];
}

SIMT_SELDOM Fiber* pop_by_thread(Context& c) {
    if (config.order == Order::priority) return pop_priority(c);
    if (config.order == Order::random) {
        const unsigned other = c.head + (unsigned)(draw(c) % (c.tail - c.head));
        std::swap(c.ring[c.head % max_threads], c.ring[other % max_threads]);
    }
    Fiber* next = &c.table[c.ring[c.head++ % max_threads]];
    __builtin_prefetch(&c.table[c.ring[(c.head + 2) % max_threads]]);
    fetch(&c.table[c.ring[(c.head + 1) % max_threads]]);
    return next;
}

SIMT_INLINE Fiber* pop_ready(Context& c) {
    if (c.head == c.tail) return nullptr;
    return SIMT_LIKELY(by_warp()) ? pop_by_warp(c) : pop_by_thread(c);
}

void push_lanes(Context& c, unsigned warp, Mask lanes, const Fiber* except) {
    if (except) lanes &= ~bit(except->lane);
    if (by_warp()) return push_of_warp(c, warp, lanes);
    for_lanes(lanes, [&](unsigned l) { push_ready(c, c.table[warp * (size_t)warpSize + l]); });
}

// ---- running one thread or another

void become(Context& c, Fiber& f) {
    f.state = State::running;
    c.rank = (unsigned)(&f - c.table);
    c.met = f.mask;
    threadIdx = f.thread;
}

Turn turn_of(Context& c, const Standing** leave, Fiber& next) {
    become(c, next);
    c.stack = next.stack;
    c.switches++;
    return {leave, next.standing};
}

Fiber* next_fresh(Context& c) {
    if (c.started == c.threads) return nullptr;
    const unsigned rank = config.order == Order::forward ? c.started : c.order[c.started];
    ++c.started;
    __builtin_prefetch(&c.table[rank + 2]);
    return &c.table[rank];
}

Turn turn_of_new(Context& c, const Standing** leave, Fiber& fresh) {
    const Standing* begin = take_stack(c);
    fresh.stack = (int16_t)c.stack;
    become(c, fresh);
    c.switches++;
    return {leave, begin};
}

Turn turn_of_main(Context& c, const Standing** leave) {
    c.switches++;
    return {leave, c.main};
}

[[noreturn]] void leave_for_good(Turn turn) {
    switch_threads(turn);
    __builtin_unreachable();
}

[[noreturn]] void report_deadlock(Context& c);

SIMT_SELDOM Turn turn_of_me_or_new(Context& c, Fiber& me, bool mine) {
    if (mine) {
        become(c, me);
        return {};
    }
    if (Fiber* fresh = next_fresh(c)) return turn_of_new(c, &me.standing, *fresh);
    report_deadlock(c);
}

// The running thread waits.
Turn next_turn(Context& c, Fiber& me) {
    Fiber* next = pop_ready(c);
    if (SIMT_LIKELY(next && next != &me)) return turn_of(c, &me.standing, *next);
    return turn_of_me_or_new(c, me, next);
}

// The running thread goes behind all that are ready; `fresh`, if any, runs now.
Turn step_aside(Context& c, Fiber& me, Fiber* fresh) {
    push_ready(c, me);
    if (by_warp()) end_turn(c, me.warp);
    return fresh ? turn_of_new(c, &me.standing, *fresh) : next_turn(c, me);
}

void make_table(Context& c, unsigned done) {  // threads below `done` have run to their end
    const unsigned w = (unsigned)warpSize;
    for (unsigned i = 0; i < warps_of(c); ++i) {
        const unsigned lanes = std::min(w, c.threads - i * w);
        const unsigned gone = std::min(done > i * w ? done - i * w : 0u, lanes);
        const Mask all = lanes == 64 ? ~Mask{0} : bit(lanes) - 1;
        const Mask exited = gone == 64 ? ~Mask{0} : bit(gone) - 1;
        c.warps[i] = {all & ~exited, 0, 0, 0, 0, (uint32_t)draw(c) | 1u << 31,
                      (uint8_t)(config.order == Order::reverse ? 0 : 63)};
    }
    c.lowest = 1u << 31;
    uint3 at = {0, 0, 0};
    for (unsigned i = 0; i < c.threads; ++i) {
        Fiber& f = c.table[i];
        f.thread = at;
        f.warp = (uint8_t)(i / w);
        f.lane = (uint8_t)(i % w);
        f.state = i < done ? State::done : State::fresh;
        if (++at.x == c.size.x) {
            at.x = 0;
            if (++at.y == c.size.y) {
                at.y = 0;
                ++at.z;
            }
        }
    }
    c.fibers = 1;
    c.exited = done;
    c.head = c.tail = c.waiting = 0;
    c.first_turn = c.last_turn = 0;
    c.queued = 0;
    for (NamedBarrier& b : c.named) b = {0, 0};
}

SIMT_SELDOM void make_fibers(Context& c) {
    make_table(c, c.rank);
    c.started = c.rank + 1;
    c.table[c.rank].state = State::running;
    c.table[c.rank].stack = (int16_t)c.stack;
}

// The running thread, as a fiber; makes fibers of all when it is the first that blocks.
Fiber& self(Context& c) {
    if (SIMT_UNLIKELY(!c.fibers)) make_fibers(c);
    return c.table[c.rank];
}

void give_back_stack(Context& c) { c.free_stack[c.free_stacks++] = (int16_t)c.stack; }

// No thread of the block is ready or new.
Turn last_turn(Context& c, const Standing** leave) {
    if (c.fibers && c.exited < c.threads) {
        if (!c.grid || c.waiting != c.threads - c.exited) report_deadlock(c);
        c.phase = Phase::grid;
    } else {
        c.phase = Phase::finished;
    }
    give_back_stack(c);
    return turn_of_main(c, leave);
}

void fiber_main() {
    Context& c = context();
    c.launch->call.run(c.launch->call.closure);
    const Standing* nobody;
    leave_for_good(last_turn(c, &nobody));
}

// ---- warp operations

bool agree(const Fiber* lanes, Mask need, const Fiber& with) {
    for (Mask m = need; m; m &= m - 1) {
        const Fiber& f = lanes[__builtin_ctzll(m)];
        if (f.mask != with.mask || f.complete != with.complete) return false;
    }
    return true;
}

void carry_out(Context& c, unsigned warp, Mask present, Fiber* last) {
    ++c.progress;
    Warp& w = c.warps[warp];
    Fiber* lanes = &c.table[warp * (size_t)warpSize];
    const void* own[64];
    for (int l = 0; l < warpSize; ++l) own[l] = present >> l & 1 ? lanes[l].own : nullptr;
    const Fiber& any = lanes[__builtin_ctzll(present)];
    if (any.complete) any.complete(const_cast<void* const*>(own), present);
    if (any.sync == Sync::memory && checking()) check::warp_sync(c, warp, present);
    w.masked &= ~present;
    w.active &= ~present;
    push_lanes(c, warp, present, last);
    if (last) last->state = State::running;
}

bool all_blocked(const Context& c, const Warp& w) {
    Mask named = 0;
    if (SIMT_UNLIKELY(c.named_waiting)) {
        const Fiber* lanes = &c.table[(&w - c.warps) * (size_t)warpSize];
        for_lanes(w.live, [&](unsigned l) {
            if (lanes[l].state == State::named) named |= bit(l);
        });
    }
    return !(w.live & ~(w.masked | w.active | w.barrier | named));
}

bool before(Site a, Site b) {
    if (a->_M_file_name != b->_M_file_name) return a->_M_file_name < b->_M_file_name;
    if (a->_M_line != b->_M_line) return a->_M_line < b->_M_line;
    return a->_M_column < b->_M_column;
}

// Where a lane waits that is in so many statements: at an operation in the innermost of them,
// before one of its branches, or at its end. What has the highest level comes first.
enum class Waits : uint16_t { at_end, at_branch, within };
uint16_t level_of(const Context& c, Waits where) {
    return (uint16_t)(4 * c.depth[c.rank] + (unsigned)where);
}
bool is_within(const Fiber& f) { return f.level % 4 == (unsigned)Waits::within; }

// Without a mask: when all lanes of the warp wait, those deepest in statements, and of these those
// at the first place in the source, are the converged ones. A divergent warp reconverges after a
// branch, which is further down.
void settle_active(Context& c, unsigned warp, Fiber* last) {
    Warp& w = c.warps[warp];
    Fiber* lanes = &c.table[warp * (size_t)warpSize];
    const Fiber* first = nullptr;
    for_lanes(w.active, [&](unsigned l) {
        const Fiber& f = lanes[l];
        if (!first || f.level > first->level ||
            (f.level == first->level && before(f.at, first->at)))
            first = &f;
    });
    Mask group = 0;
    for_lanes(w.active, [&](unsigned l) {
        const Fiber& f = lanes[l];
        if (f.at == first->at && f.complete == first->complete && f.level == first->level)
            group |= bit(l);
    });
    for_lanes(group, [&](unsigned l) { lanes[l].mask = group; });
    carry_out(c, warp, group, last && (group & bit(last->lane)) ? last : nullptr);
}

SIMT_SELDOM void settle_if_blocked(Context& c, unsigned warp) {
    if (all_blocked(c, c.warps[warp])) settle_active(c, warp, nullptr);
}

// A lane of the warp has gone (returned, or waits elsewhere): does that complete an operation?
SIMT_SELDOM void settle(Context& c, unsigned warp) {
    Warp& w = c.warps[warp];
    Fiber* lanes = &c.table[warp * (size_t)warpSize];
    for (Mask m = w.masked; m; m &= m - 1) {
        const unsigned l = (unsigned)__builtin_ctzll(m);
        if (!(w.masked & bit(l))) continue;  // an operation before completed this one's lanes
        const Mask need = lanes[l].mask & w.live;
        if (!(need & ~w.masked) && agree(lanes, need, lanes[l])) carry_out(c, warp, need, nullptr);
    }
    if (w.active) settle_if_blocked(c, warp);
}

// Lanes that wait at the same place for some of `done`, which come with another mask.
void note_other_masks(const Context& c, const Fiber& f, Mask done) {
    const Fiber* lanes = &c.table[f.warp * (size_t)warpSize];
    const Fiber* other = nullptr;
    for_lanes(c.warps[f.warp].masked & ~done, [&](unsigned l) {
        if (lanes[l].at == f.at && (lanes[l].mask & done)) other = &lanes[l];
    });
    if (!other) return;
    finding(305, f.at, "lane %d names lanes 0x%llx, lane %d names lanes 0x%llx", f.lane,
            (unsigned long long)f.mask, other->lane, (unsigned long long)other->mask);
}

// All lanes that `last` names have come: whether they are at the same operation, which is then done.
SIMT_SELDOM bool carried_out(Context& c, Fiber& last, Mask need) {
    if (!agree(&c.table[last.warp * (size_t)warpSize], need, last)) return false;
    if (SIMT_UNLIKELY(c.warps[last.warp].masked & ~need)) note_other_masks(c, last, need);
    carry_out(c, last.warp, need, &last);
    return true;
}

// The caller is not in its own mask. A 32-bit mask on 64 lanes cannot name the upper half: go on
// as two halves; otherwise add the caller.
SIMT_SELDOM Mask mend_mask(Context& c, const Fiber& f, Mask mask, Site at) {
    (void)c;
    if (warpSize == 64 && f.lane >= 32 && !(mask >> 32)) {
        finding(310, at, "mask 0x%llx has 32 bits and names no lane above 31; lane %d calls",
                (unsigned long long)mask, f.lane);
        return mask << 32 | bit(f.lane);
    }
    finding(304, at, "lane %d calls a warp operation with mask 0x%llx, which does not name it",
            f.lane, (unsigned long long)mask);
    return mask | bit(f.lane);
}

// ---- barriers

// Hardware counts the warps that come to a barrier, not the places where they stand: whole warps
// may come from different ones. The lanes of one warp may not, for it comes once for all of them.
void note_different_barriers(const Context& c, const Fiber& first, const Fiber& other) {
    for (unsigned w = 0; w < warps_of(c); ++w) {
        const Fiber* lanes = &c.table[w * (size_t)warpSize];
        const Fiber* here = nullptr;
        const Fiber* elsewhere = nullptr;
        for_lanes(c.warps[w].barrier, [&](unsigned l) {
            if (!here) here = &lanes[l];
            else if (lanes[l].at != here->at) elsewhere = &lanes[l];
        });
        if (!elsewhere) continue;
        report(301, Place(here->at), Place(elsewhere->at),
               "lanes of warp %u meet at different barriers (line %u and line %u), which is "
               "undefined within a warp", w, here->at->_M_line, elsewhere->at->_M_line);
        return;
    }
    report(311, Place(first.at), Place(other.at),
           "whole warps of one block meet at different barriers (line %u and line %u): hardware "
           "that counts warps lets them pass, the language does not promise it",
           first.at->_M_line, other.at->_M_line);
}

void note_divergence(const Context& c) {
    const Fiber* first = nullptr;
    const Fiber* other = nullptr;
    for (unsigned i = 0; i < c.threads; ++i) {
        const Fiber& f = c.table[i];
        if (f.state != State::barrier) continue;
        if (!first) first = &f;
        else if (f.at != first->at && !other) other = &f;
    }
    if (!first) return;
    if (other) note_different_barriers(c, *first, *other);
    if (!c.exited) return;
    bool partial = false;
    for (unsigned w = 0; w < warps_of(c); ++w) {
        const unsigned lanes = std::min((unsigned)warpSize, c.threads - w * warpSize);
        const Mask all = lanes == 64 ? ~Mask{0} : bit(lanes) - 1;
        partial |= c.warps[w].live && c.warps[w].live != all;
    }
    finding(partial ? 302 : 308, first->at, "%u of %u threads have returned; the others wait here",
            c.exited, c.threads);
}

SIMT_SELDOM void release_barrier(Context& c) {
    c.spins = 0;
    ++c.progress;
    if (SIMT_UNLIKELY(c.mixed || c.exited)) note_divergence(c);
    c.votes = c.tally;
    c.waiting = 0;
    c.grid = false;
    if (checking()) check::barrier(c);
    const unsigned n = warps_of(c);
    for (unsigned i = 0; i < n; ++i) {
        const unsigned w = config.order == Order::reverse ? n - 1 - i : i;
        const Mask waiting = c.warps[w].barrier;
        c.warps[w].barrier = 0;
        push_lanes(c, w, waiting, nullptr);
    }
}

void arrive(Context& c, Fiber& f, bool predicate, Site at) {
    if (!c.waiting) {
        c.tally = {0, true, false};
        c.meeting = at;
        c.mixed = false;
    }
    c.mixed |= at != c.meeting;
    c.tally.count += predicate;
    c.tally.all &= predicate;
    c.tally.any |= predicate;
    f.state = State::barrier;
    f.at = at;
    c.warps[f.warp].barrier |= bit(f.lane);
    ++c.waiting;
}

void count_elsewhere(const Context& c, unsigned counts[8]) {
    for (unsigned i = 0; i < c.threads; ++i)
        if (!is_ready(c, c.table[i])) counts[(int)c.table[i].state]++;
}

const Fiber* waiting_in(const Context& c, State state) {
    for (unsigned i = 0; i < c.threads; ++i)
        if (c.table[i].state == state && !is_ready(c, c.table[i])) return &c.table[i];
    return nullptr;
}

}  // namespace

void describe_waiting(const Context& c, char* text, size_t size) {
    text[0] = 0;
    if (!c.fibers) return;
    unsigned counts[8] = {};
    count_elsewhere(c, counts);
    const struct { State state; const char* what; } kinds[] = {
        {State::barrier, "at a barrier"}, {State::masked, "in a warp operation"},
        {State::active, "in a maskless warp operation"}, {State::named, "at a named barrier"}};
    size_t used = 0;
    for (const auto& kind : kinds) {
        if (!counts[(int)kind.state] || used >= size) continue;
        const Fiber* f = waiting_in(c, kind.state);
        used += (size_t)snprintf(text + used, size - used, "%s%u %s (line %u)", used ? ", " : "",
                                 counts[(int)kind.state], kind.what, f->at ? f->at->_M_line : 0);
    }
    if (c.exited && used < size)
        snprintf(text + used, size - used, "%s%u returned", used ? ", " : "", c.exited);
}

namespace {

[[noreturn]] void report_deadlock(Context& c) {
    char where[256];
    describe_waiting(c, where, sizeof where);
    const Fiber* f = waiting_in(c, State::masked);
    if (!f) {
        f = waiting_in(c, State::barrier);
        if (!f) f = waiting_in(c, State::named);
        if (!f) f = waiting_in(c, State::active);
        fatal(303, f ? f->at : nullptr, "no thread of the block can go on: %s", where);
    }
    const Fiber* lanes = &c.table[f->warp * (size_t)warpSize];
    const Warp& w = c.warps[f->warp];
    Mask missing = f->mask & w.live;
    const Fiber* differs = nullptr;
    for_lanes(missing & w.masked, [&](unsigned l) {
        const Fiber& o = lanes[l];
        if (o.mask == f->mask && o.complete == f->complete) missing &= ~bit(l);
        else if (o.complete == f->complete) differs = &o;
    });
    if (differs)
        fatal(305, f->at, "lane %d names lanes 0x%llx, lane %d names lanes 0x%llx; %s", f->lane,
              (unsigned long long)f->mask, differs->lane, (unsigned long long)differs->mask, where);
    fatal(303, f->at, "lane %d waits for lanes 0x%llx of mask 0x%llx, which are elsewhere: %s",
          f->lane, (unsigned long long)missing, (unsigned long long)f->mask, where);
}

}  // namespace

// ---- what kernels call

Turn next_fiber() {
    Context& c = context();
    Fiber& f = c.table[c.rank];
    f.state = State::done;
    c.spins = 0;
    ++c.progress;
    ++c.exited;
    Warp& w = c.warps[f.warp];
    w.live &= ~bit(f.lane);
    if (w.masked | w.active) settle(c, f.warp);
    if (c.waiting && c.waiting == c.threads - c.exited && !c.grid) release_barrier(c);
    if (Fiber* next = pop_ready(c)) {
        give_back_stack(c);
        return turn_of(c, &f.standing, *next);
    }
    Fiber* fresh = next_fresh(c);
    if (!fresh) return last_turn(c, &f.standing);
    fresh->stack = (int16_t)c.stack;
    become(c, *fresh);
    return {};
}

bool next_thread() {
    Block& b = *block;
    if (b.fibers) {
        take_turn(next_fiber());
        return true;
    }
    if (++b.rank >= b.threads) return false;
    if (++threadIdx.x < b.size.x) return true;
    threadIdx.x = 0;
    if (++threadIdx.y < b.size.y) return true;
    threadIdx.y = 0;
    ++threadIdx.z;
    return true;
}

Turn arrive_named(Mask mask, void* own, Complete complete, Site at, Sync sync) {
    Context& c = context();
    Fiber& f = self(c);
    Warp& w = c.warps[f.warp];
    if (SIMT_UNLIKELY(!(mask & bit(f.lane)))) mask = mend_mask(c, f, mask, at);
    f.own = own;
    f.complete = complete;
    f.mask = mask;
    f.at = at;
    f.sync = sync;
    f.state = State::masked;
    w.masked |= bit(f.lane);
    const Mask need = mask & w.live;
    if (!(need & ~w.masked) && carried_out(c, f, need)) return {};
    if (SIMT_UNLIKELY(w.active)) settle_if_blocked(c, f.warp);
    return next_turn(c, f);
}

namespace {
Turn arrive_at(void* own, Complete complete, Site at, Waits where) {
    Context& c = context();
    Fiber& f = self(c);
    Warp& w = c.warps[f.warp];
    f.own = own;
    f.complete = complete;
    f.mask = 0;
    f.at = at;
    f.sync = Sync::registers;
    f.level = level_of(c, where);
    f.state = State::active;
    w.active |= bit(f.lane);
    if (all_blocked(c, w)) settle_active(c, f.warp, &f);
    if (f.state != State::running) return next_turn(c, f);
    c.met = f.mask;
    return {};
}
}  // namespace

Turn arrive_active(void* own, Complete complete, Site at) {
    return arrive_at(own, complete, at, Waits::within);
}

Turn arrive_barrier(bool predicate, Site at) {
    Context& c = context();
    Fiber& f = self(c);
    arrive(c, f, predicate, at);
    if (c.waiting == c.threads - c.exited) {
        release_barrier(c);
    } else if (SIMT_UNLIKELY(c.warps[f.warp].active)) {
        settle_if_blocked(c, f.warp);
    }
    return next_turn(c, f);
}

void grid_barrier(Site at) {
    Context& c = context();
    if (!c.launch->shape.cooperative)
        fatal(401, at, "grid.sync() in a kernel that was not launched cooperatively");
    Fiber& f = self(c);
    arrive(c, f, false, at);
    c.grid = true;
    if (c.waiting == c.threads - c.exited) {
        c.phase = Phase::grid;
        return switch_threads(turn_of_main(c, &f.standing));
    }
    take_turn(next_turn(c, f));
}

void meet(unsigned id, unsigned threads, bool wait, Site at);

void named_barrier(unsigned id, unsigned threads, bool wait, Site at) {
    if (id >= named_barriers) fatal(401, at, "barrier %u: there are 16, numbered 0 to 15", id);
    meet(id, threads, wait, at);
}

void tile_barrier(unsigned threads, unsigned tile, Site at) {
    const Context& c = context();
    const unsigned begin = tile * threads;  // the last tile may be cut short by the block's end
    const unsigned present = begin + threads > c.threads ? c.threads - begin : threads;
    meet(named_barriers + max_threads / threads - 1 + tile, present, true, at);
}

void offer(const void* value) {
    Context& c = context();
    c.offered[c.rank] = value;
}
void take(void* to, unsigned rank, size_t bytes) { memcpy(to, context().offered[rank], bytes); }

void meet(unsigned id, unsigned threads, bool wait, Site at) {
    Context& c = context();
    Fiber& f = self(c);
    NamedBarrier& b = c.named[id];
    const unsigned expected = threads ? threads : c.threads;
    if (b.arrived && b.expected != expected)
        finding(301, at, "barrier %u is met with %u threads here and %u elsewhere", id, expected,
                b.expected);
    b.expected = expected;
    if (++b.arrived == expected) {
        b = {0, 0};
        if (checking()) check::named_barrier(c, id, f, wait);
        for (unsigned i = 0; i < c.threads; ++i) {
            if (c.table[i].state != State::named || c.table[i].named != id) continue;
            push_ready(c, c.table[i]);
            --c.named_waiting;
        }
        return;
    }
    if (checking()) check::named_arrive(c, id, f);
    if (!wait) return;
    f.state = State::named;
    f.at = at;
    f.named = (uint8_t)id;
    ++c.named_waiting;
    if (c.warps[f.warp].active) settle_if_blocked(c, f.warp);
    take_turn(next_turn(c, f));
}

namespace {

#if defined(__x86_64__)
constexpr int registers_below = 5 * 8;  // the address of a function's frame
#else
constexpr int registers_below = 0;
#endif

// Of each word from there to the top of the running thread's stack.
SIMT_SELDOM uint32_t hash_of_stack(const Context& c, const char* from) {
    const char* end = stack_top(c, c.stack);
    uint64_t hash = 14695981039346656037ull;
    for (; from + 8 <= end; from += 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        hash = (hash ^ word) * 1099511628211ull;
        hash ^= hash >> 29;
    }
    return (uint32_t)hash | 1;
}

// Whether the running thread was in this state when it gave way before: it only waits, and nothing
// that it does ends that.
bool is_back(Context& c, const char* stack) {
    uint32_t* states = c.states[c.rank];
    const uint32_t now = hash_of_stack(c, stack);
    if (std::find(states, states + kept_states, now) != states + kept_states) return true;
    std::copy_backward(states, states + kept_states - 1, states + kept_states);
    states[0] = now;
    return false;
}

[[noreturn]] void report_hopeless(Context& c) {
    set_launch_error(launch_timeout);
    const Launch& l = *c.launch;
    const bool all_begun = l.begun == l.blocks;
    unsigned in_it = 0;
    const Fiber* left = all_begun ? left_behind(c, &in_it) : nullptr;
    if (left)
        fatal(312, left->at,
              "lane %u waits in this statement for what lane %u of its wave does behind it: the wave "
              "leaves it as a whole, so neither goes on", in_it, left->lane);
    char where[256];
    describe_waiting(c, where, sizeof where);
    const char* others = where[0] ? "; others: " : "";
    const Place place(place_in_kernel());
    if (all_begun)  // more room for blocks would not help
        report(303, place, Place(), "threads wait for what no thread of the grid does%s%s", others,
               where);
    else
        report(315, place, Place(),
               "threads wait for what none of those that have begun does; %llu of %llu blocks "
               "have%s%s", (unsigned long long)l.begun, (unsigned long long)l.blocks, others, where);
    abandon();
}

}  // namespace

const Fiber* left_behind(const Context& c, unsigned* in_it) {
    if (!facts.waves || !c.fibers) return nullptr;
    for (unsigned w = 0; w < warps_of(c); ++w) {
        const Fiber* lanes = &c.table[w * (size_t)warpSize];
        const Warp& warp = c.warps[w];
        const Fiber* left = nullptr;
        for_lanes(warp.active, [&](unsigned l) {
            if (!is_within(lanes[l]) && (!left || lanes[l].level > left->level)) left = &lanes[l];
        });
        const Mask blocked = warp.masked | warp.active | warp.barrier;
        bool goes_round = false;
        for_lanes(warp.live & ~blocked, [&](unsigned l) {
            if (goes_round || lanes[l].state == State::named) return;
            goes_round = true;
            *in_it = l;
        });
        if (left && goes_round) return left;
    }
    return nullptr;
}

void spin() {
    if (!block) return;
    Context& c = context();
    Fiber& f = self(c);
    __builtin_unwind_init();  // the caller's registers are on the stack from here on
    if (!is_back(c, static_cast<const char*>(__builtin_frame_address(0)) - registers_below))
        ++c.progress;
    c.idle = c.progress == c.idle_since ? c.idle + 1 : 0;
    c.idle_since = c.progress;
    c.warps[f.warp].priority = --c.lowest;  // whoever polls goes behind those it waits for
    const bool all_wait =
        c.idle > 0 && c.idle >= 2 * (c.tail - c.head) && c.started == c.threads;
    if (all_wait || ++c.spins > 4 * c.threads) {  // only another block can help
        c.computes = !all_wait;
        c.spins = c.idle = 0;
        c.phase = Phase::stalled;
        c.stalled = &f;
        switch_threads(turn_of_main(c, &f.standing));
        if (SIMT_UNLIKELY(c.hopeless)) report_hopeless(c);
        return;
    }
    take_turn(step_aside(c, f, next_fresh(c)));  // or those that poll would only wake each other
}

void step() {
    Context& c = context();
    take_turn(step_aside(c, self(c), next_fresh(c)));
}

void polled_slowly() {
    polls = polls_at_once;
    spin();
}
void turned_slowly() {
    turns = turns_at_once;
    spin();
}

void enter_statement() {
    Context& c = context();
    ++c.depth[c.rank];
}

void leave_statement(Site at) {
    Context& c = context();
    if (facts.waves) take_turn(arrive_at(nullptr, nullptr, at, Waits::at_end));
    --c.depth[c.rank];
}

// Which of two branches a compiler puts first is its own affair.
void enter_branch(int which, Site at) {
    if (!facts.waves) return;
    const bool is_later = (config.order == Order::reverse) != (which == 1);
    if (is_later) take_turn(arrive_at(nullptr, nullptr, at, Waits::at_branch));
}

// ---- blocks, for launch.cpp

Context* new_context(unsigned threads, size_t stack_bytes) {
    void* at = mmap(nullptr, sizeof(Context), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) return nullptr;
    Context* c = new (at) Context();
    c->stack_bytes = stack_bytes;
    c->stack_count = threads;
    c->stacks = map_stacks(*c);
    c->shared = map_shared();
    if (!c->stacks || !c->shared) {
        delete_context(c);
        return nullptr;
    }
    free_all_stacks(*c);
    return c;
}

void delete_context(Context* c) {
    unmap_stacks(*c);
    unmap_shared(c->shared);
    free_slots(c->slots);
    check::forget(*c);
    munmap(c, sizeof(Context));
}

void begin_block(Context& c, Launch& launch, uint64_t number) {
    const dim3 g = launch.shape.grid, b = launch.shape.block;
    c.launch = &launch;
    c.index = {(unsigned)(number % g.x), (unsigned)(number / g.x % g.y),
               (unsigned)(number / g.x / g.y)};
    c.size = b;
    c.threads = b.x * b.y * b.z;
    c.rank = 0;
    c.fibers = 0;
    c.layout = launch.layout;
    c.exited = c.waiting = c.head = c.tail = c.named_waiting = c.spins = 0;
    c.started = 1;
    c.grid = c.hopeless = c.computes = false;
    c.progress = c.idle_since = c.idle = 0;
    memset(c.states, 0, c.threads * sizeof c.states[0]);
    memset(c.depth, 0, c.threads * sizeof c.depth[0]);
    c.random = (config.seed * 0x9E3779B97F4A7C15ull ^ number * 0xD1B54A32D192ED03ull) | 1;
    begin_shared(c);
    reset_slots(c);
    if (checking()) check::begin_block(c);
}

void enter_block(Context& c) {
    block = &c;
    blockIdx = c.index;
    threadIdx = {0, 0, 0};
    c.phase = Phase::running;
    if (config.order != Order::forward) {
        for (unsigned i = 0; i < c.threads; ++i)
            c.order[i] = (uint16_t)(config.order == Order::reverse ? c.threads - 1 - i : i);
        for (unsigned i = c.threads - 1; config.order > Order::reverse && i > 0; --i)
            std::swap(c.order[i], c.order[draw(c) % (i + 1)]);
        make_table(c, 0);
        c.started = 0;
    }
    const Standing* begin = take_stack(c);
    if (c.fibers) {
        Fiber& first = *next_fresh(c);
        first.stack = (int16_t)c.stack;
        become(c, first);
    }
    switch_threads({&c.main, begin});
    block = nullptr;
}

void resume_block(Context& c) {
    block = &c;
    blockIdx = c.index;
    Fiber* next = c.stalled;
    if (c.phase == Phase::grid) {
        release_barrier(c);
        next = pop_ready(c);
    }
    c.stalled = nullptr;
    c.computes = false;
    c.phase = Phase::running;
    switch_threads(turn_of(c, &c.main, *next));
    block = nullptr;
}

void abandon() {
    Context& c = context();
    c.launch->failed = true;
    c.phase = Phase::finished;
    free_all_stacks(c);
    const Standing* nobody;
    leave_for_good(turn_of_main(c, &nobody));
}

}  // namespace simt
