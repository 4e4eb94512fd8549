// The memory checkers. Checked builds are compiled with -fsanitize=thread, but linked with these
// callbacks instead of that library's: each access then knows its emulated block and thread.
//
// Happens-before: a barrier interval of a block has a number, its stamp. Within an interval the
// lanes of a warp have clocks that __syncwarp() joins, and all threads of a block that uses named
// barriers have clocks that those join. Between threads that meet at none, a fence and an atomic
// (or volatile) access order what came before the fence (PTX memory model).
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "context.h"
#include "counters.h"
#include "heap.h"
#include "memory.h"
#include "symbols.h"

namespace simt {
namespace {

// ---- what is remembered of each granule of memory (4 bytes; 2 or 1 where smaller ones are used)

enum : uint16_t {
    rank_bits = 0x3FF,
    is_atomic = 0x400,
    is_volatile = 0x800,
    block_scope = 0x1000,
    many = 0x2000,  // reads only: by threads of several warps
};

struct Cell {
    uint32_t w_stamp, w_pc;
    uint16_t w_who, w_clock;
    uint16_t r_who, r_clock;  // r_clock: the earliest of the lanes in r_lanes
    uint32_t r_stamp, r_pc;
    Mask r_lanes;  // of one warp; `many`: a reader of another warp, its rank and its clock << 16
};
static_assert(sizeof(Cell) == 32, "memory.cpp sizes the mapping");

// ---- what a thread knows of others, beyond barriers

struct Release {  // of everything that `thread` had seen when it passed its fence
    uint32_t owner, stamp;
    uint16_t thread, clock;
    uint16_t lanes[64];
    std::vector<uint16_t> seen;             // of all threads, where named barriers are used
    Scope scope;
    const Release* before;                  // earlier ones on the same location
    std::vector<const Release*> inherited;  // what the releasing thread had acquired itself
};

using Acquired = std::map<const void*, const Release*>;  // by location: the newest

struct Thread {
    uint16_t clock = 0;
    bool fenced = false;
    Scope fence = Scope::block;
    Acquired acquired;
    struct {
        const void* at = nullptr;  // null: it has acquired more since
        uint32_t stamp;
        uint16_t clock;
        Scope scope;
    } released;  // last
};

struct WarpClocks {
    uint32_t stamp = 0;              // of another interval: nothing is known yet
    uint16_t known[64][64];          // [lane][other]: the other's accesses below this are known
};

struct Meeting {  // what those that have come to a named barrier bring to it
    uint32_t stamp = 0;
    std::vector<uint16_t> seen;
    Acquired acquired;
};

struct Flight {  // a cp.async that is not yet waited for, of one word of shared memory
    const char* from;
    uint32_t pc;
    uint16_t rank;
    bool active;
};

struct BlockState {
    uint32_t number = 0, stamp = 0;
    Thread threads[max_threads];
    WarpClocks warps[max_warps];
    Acquired acquired;               // by all, at the last barrier
    std::unordered_map<uint32_t, std::vector<const Release*>> by_block;  // flattened, for searching
    bool flattened = false;
    std::vector<uint8_t> written;    // of shared memory, one bit per byte
    std::vector<Flight> flights;     // of shared memory, one per word
    size_t in_flight = 0;            // words
    uint32_t seen_stamp = 0;         // of another interval: nothing is known yet
    size_t seen_row = 0;
    std::vector<uint16_t> seen;      // [thread][other], as WarpClocks::known
    Meeting named[all_barriers];
    std::unordered_map<const void*, Meeting> mbarriers;
};

uint32_t next_stamp = 1, launch_first = 1, next_block = 1;
std::vector<uint32_t> owners;  // block of each stamp, from launch_first on
std::unordered_map<const void*, const Release*> locations;  // the newest release of each
std::vector<Release*> releases;
std::vector<uint8_t> shared_valid(shared_arena);
struct SharedName { size_t offset, bytes; const char* name; };
std::vector<SharedName> shared_names;
const Call* running;
const char* code_base;  // program counters are kept as 32-bit distances from it

BlockState& state(Context& c) { return *static_cast<BlockState*>(c.checker); }

uint32_t owner_of(uint32_t stamp) { return owners[stamp - launch_first]; }

uint32_t new_stamp(uint32_t owner) {
    owners.push_back(owner);
    return next_stamp++;
}

uint32_t keep_pc(const void* pc) {
    if (!code_base) code_base = static_cast<const char*>(pc) - (1u << 30);
    const ptrdiff_t distance = static_cast<const char*>(pc) - code_base;
    return distance > 0 && distance < (ptrdiff_t)1 << 32 ? (uint32_t)distance : 0;
}
Place place_of(uint32_t kept) { return kept ? Place(code_base + kept) : Place(); }

// ---- ordering

uint16_t known_of(BlockState& b, unsigned warp, unsigned lane, unsigned other) {
    const WarpClocks& w = b.warps[warp];
    return w.stamp == b.stamp ? w.known[lane][other] : 0;
}

void start_clocks(BlockState& b, unsigned warp) {
    WarpClocks& w = b.warps[warp];
    if (w.stamp == b.stamp) return;
    memset(w.known, 0, sizeof w.known);
    w.stamp = b.stamp;
}

uint16_t* seen_by(BlockState& b, unsigned thread) {
    return b.seen_stamp == b.stamp ? &b.seen[thread * b.seen_row] : nullptr;
}

void start_seen(Context& c, BlockState& b) {
    if (b.seen_stamp == b.stamp) return;
    b.seen_row = (c.threads + 63) / 64 * 64;
    b.seen.assign(c.threads * b.seen_row, 0);
    b.seen_stamp = b.stamp;
    const unsigned w = (unsigned)warpSize;
    for (unsigned i = 0; i < c.threads; ++i)
        for (unsigned l = i / w * w; l < std::min((i / w + 1) * w, c.threads); ++l)
            b.seen[i * b.seen_row + l] = known_of(b, i / w, i % w, l % w);
}

void join(uint16_t* into, const uint16_t* from, size_t row) {
    for (size_t i = 0; i < row; i += 64)  // so that it is vectorised
        for (size_t k = i; k < i + 64; ++k) into[k] = std::max(into[k], from[k]);
}

using Met = std::unordered_set<const Release*>;

// Not by recursion: a chain may be as long as there were atomics, a fiber's stack is short.
void add_with_history(const Release* newest, std::vector<const Release*>& out, Met& met) {
    std::vector<const Release*> todo{newest};
    while (!todo.empty()) {
        const Release* r = todo.back();
        todo.pop_back();
        if (!r || !met.insert(r).second) continue;
        out.push_back(r);
        todo.push_back(r->before);
        todo.insert(todo.end(), r->inherited.begin(), r->inherited.end());
    }
}

bool covers(const Release& r, uint32_t stamp, unsigned who, uint16_t clock) {
    if (stamp < r.stamp) return true;
    if (stamp > r.stamp) return false;
    if (who == r.thread) return clock < r.clock;
    if (!r.seen.empty()) return clock < r.seen[who];
    const unsigned w = (unsigned)warpSize;
    return who / w == r.thread / w && clock < r.lanes[who % w];
}

bool reached_by_release(Context& c, BlockState& b, uint32_t owner, uint32_t stamp, unsigned who,
                        uint16_t clock) {
    if (!b.flattened) {
        b.by_block.clear();
        std::vector<const Release*> all;
        Met met;
        for (auto& [at, r] : b.acquired) add_with_history(r, all, met);
        for (const Release* r : all) b.by_block[r->owner].push_back(r);
        b.flattened = true;
    }
    auto found = b.by_block.find(owner);
    if (found != b.by_block.end())
        for (const Release* r : found->second)
            if (covers(*r, stamp, who, clock)) return true;
    const Acquired& own = b.threads[c.rank].acquired;
    if (own.empty()) return false;
    std::vector<const Release*> all;
    Met met;
    for (auto& [at, r] : own) add_with_history(r, all, met);
    for (const Release* r : all)
        if (r->owner == owner && covers(*r, stamp, who, clock)) return true;
    return false;
}

enum class Unordered : uint8_t { no, lanes, threads, blocks };

// How an earlier access relates to the running thread's present one. Shared memory (not `global`)
// is another memory in each block, though its address is the same.
Unordered relation(Context& c, BlockState& b, uint32_t stamp, unsigned who, uint16_t clock,
                   bool global) {
    if (stamp < launch_first) return Unordered::no;
    if (stamp != b.stamp) {
        const uint32_t owner = owner_of(stamp);
        if (owner == b.number || !global) return Unordered::no;  // before a barrier
        return reached_by_release(c, b, owner, stamp, who, clock) ? Unordered::no
                                                                  : Unordered::blocks;
    }
    if (who == c.rank) return Unordered::no;
    const unsigned w = (unsigned)warpSize, warp = c.rank / w;
    const bool same_warp = who / w == warp;
    if (same_warp && clock < known_of(b, warp, c.rank % w, who % w)) return Unordered::no;
    const uint16_t* seen = seen_by(b, c.rank);
    if (seen && clock < seen[who]) return Unordered::no;
    if (same_warp && facts.lockstep) return Unordered::no;
    if (reached_by_release(c, b, b.number, stamp, who, clock)) return Unordered::no;
    return same_warp ? Unordered::lanes : Unordered::threads;
}

// ---- reports

const char* space(bool global) { return global ? "global" : "shared"; }

int race_code(Unordered how, bool global, bool with_atomic, bool warp_synchronous) {
    if (with_atomic) return 205;
    if (how == Unordered::blocks) return 203;
    if (warp_synchronous) return 204;
    return global ? 202 : 201;
}

struct Access {
    char* at;
    unsigned bytes;
    bool writes, atomic, is_volatile, global;
    Scope scope;
    const void* pc;
    bool issue = false;  // of an asynchronous copy: what it will write is not there to compare
};

// A write that stores what is there already harms nobody: the report waits for the store.
struct Pending {
    bool active = false;
    char* at;
    unsigned bytes;
    char before[16];
    int code;
    Place place, other;
    char text[200];
} pending;

void settle_pending() {
    pending.active = false;
    if (memcmp(pending.at, pending.before, pending.bytes) == 0) return;
    report(pending.code, pending.place, pending.other, "%s", pending.text);
}

// A plain first read before a CAS loop on the same word is the CUDA guide's own idiom: reads that
// race with atomics are reported only when the thread does not follow them with an atomic.
struct PlainRead {
    char* at;
    unsigned rank;
    uint32_t block;
    Place place, other;
    char text[200];
};
std::vector<PlainRead> plain_reads;
// In lock-step all threads read before the first goes on: who has followed with an atomic, and where.
std::unordered_map<const char*, std::unordered_set<uint64_t>> followed;

uint64_t thread_key(unsigned rank, uint32_t block) { return (uint64_t)block << 32 | rank; }

void settle_plain_reads() {
    for (const PlainRead& r : plain_reads) report(205, r.place, r.other, "%s", r.text);
    plain_reads.clear();
}

void forget_plain_read(const char* at, unsigned rank, uint32_t block) {
    plain_reads.erase(std::remove_if(plain_reads.begin(), plain_reads.end(),
                                     [&](const PlainRead& r) {
                                         return r.at == at && r.rank == rank &&
                                                r.block == block;
                                     }),
                      plain_reads.end());
}

void settle_all() {
    if (pending.active) settle_pending();
    settle_plain_reads();
}

void describe_race(char* text, size_t size, const char* kind, const Access& a, Unordered how,
                   unsigned other, unsigned me, uint32_t other_block) {
    if (how == Unordered::blocks)
        snprintf(text, size, "%s on %s memory: block number %u and this one, nothing orders them",
                 kind, space(a.global), other_block);
    else
        snprintf(text, size, "%s on %s memory: threads %u and %u of the block, %s between", kind,
                 space(a.global), other, me,
                 how == Unordered::lanes ? "lanes of one warp with no __syncwarp()"
                                         : "no barrier");
}

void report_race(Context& c, const Access& a, Unordered how, const char* kind, unsigned other,
                 uint32_t stamp, uint32_t other_pc, bool with_atomic) {
    const bool warp_synchronous = how == Unordered::lanes && a.is_volatile;
    const int code = race_code(how, a.global, with_atomic, warp_synchronous);
    char text[200];
    const uint32_t other_block = owner_of(stamp) - owner_of(launch_first);
    describe_race(text, sizeof text, kind, a, how, other, c.rank, other_block);
    report(code, Place(a.pc), place_of(other_pc), "%s", text);
}

// ---- one granule

bool harmless(const Access& a, uint16_t other, Unordered how) {  // both are strong accesses
    const bool mine = a.atomic || a.is_volatile;
    const bool theirs = other & (is_atomic | is_volatile);
    if (!mine || !theirs) return false;
    if (a.atomic && (other & is_atomic)) return true;
    // Volatile lanes that rely on each other's order within a warp are the bug SX204 is about.
    return how != Unordered::lanes;
}

bool too_narrow(const Access& a, uint16_t other, Unordered how) {
    return how == Unordered::blocks && a.atomic && (other & is_atomic) &&
           (a.scope == Scope::block || (other & block_scope));
}

void check_against_write(Context& c, BlockState& b, Cell& cell, const Access& a) {
    const unsigned other = cell.w_who & rank_bits;
    const Unordered how = relation(c, b, cell.w_stamp, other, cell.w_clock, a.global);
    if (how == Unordered::no) return;
    if (too_narrow(a, cell.w_who, how)) {
        report(206, Place(a.pc), place_of(cell.w_pc),
               "atomics of several blocks meet here, one of them with block scope");
        return;
    }
    if (harmless(a, cell.w_who, how)) return;
    const bool with_atomic = a.atomic || (cell.w_who & is_atomic);
    if (!a.writes && with_atomic && !a.atomic) {  // maybe the first read of a CAS loop
        PlainRead r{a.at, c.rank, b.number, Place(a.pc), place_of(cell.w_pc), ""};
        describe_race(r.text, sizeof r.text, "an atomic write and a plain read", a, how, other,
                      c.rank, owner_of(cell.w_stamp) - owner_of(launch_first));
        plain_reads.push_back(r);
        return;
    }
    if (!a.writes || a.atomic || a.issue) {
        const char* kind = a.issue    ? "a write and an asynchronous copy"
                           : a.writes ? "a plain write and an atomic"
                                      : "a write and a read";
        return report_race(c, a, how, kind, other, cell.w_stamp, cell.w_pc, with_atomic);
    }
    if (pending.active) return;
    pending.active = true;
    pending.at = a.at;
    pending.bytes = std::min(a.bytes, 16u);
    memcpy(pending.before, a.at, pending.bytes);
    pending.code = race_code(how, a.global, with_atomic, how == Unordered::lanes && a.is_volatile);
    pending.place = Place(a.pc);
    pending.other = place_of(cell.w_pc);
    describe_race(pending.text, sizeof pending.text, "two writes", a, how, other, c.rank,
                  owner_of(cell.w_stamp) - owner_of(launch_first));
}

bool read_by_unordered_lane(Context& c, BlockState& b, const Cell& cell, unsigned* which) {
    const unsigned w = (unsigned)warpSize, first = (cell.r_who & rank_bits) / w * w;
    bool found = false;
    for_lanes(cell.r_lanes, [&](unsigned l) {
        if (found || first + l == c.rank) return;
        if (relation(c, b, cell.r_stamp, first + l, cell.r_clock, true) == Unordered::no) return;
        *which = first + l;
        found = true;
    });
    return found;
}

// Of the two readers that are known, of different warps: one that is not of the writer's.
Unordered relation_to_two(Context& c, BlockState& b, const Cell& cell, bool global, unsigned* which) {
    const unsigned w = (unsigned)warpSize, ranks[2] = {cell.r_who & rank_bits, (uint16_t)cell.r_lanes};
    const uint16_t clocks[2] = {cell.r_clock, (uint16_t)(cell.r_lanes >> 16)};
    for (int i = 0; i < 2; ++i) {
        if (ranks[i] / w == c.rank / w) continue;
        const Unordered how = relation(c, b, cell.r_stamp, ranks[i], clocks[i], global);
        *which = ranks[i];
        if (how != Unordered::no) return how;
    }
    return Unordered::no;
}

// Whether the write comes after all reads that are known: what conflicts with them conflicts with it.
bool check_against_reads(Context& c, BlockState& b, Cell& cell, const Access& a) {
    if (cell.r_stamp < launch_first) return true;
    unsigned other = cell.r_who & rank_bits;
    Unordered how;
    if (cell.r_stamp == b.stamp && (cell.r_who & many)) {
        how = relation_to_two(c, b, cell, a.global, &other);
    } else if (cell.r_stamp == b.stamp) {
        if (!read_by_unordered_lane(c, b, cell, &other)) return true;
        how = relation(c, b, cell.r_stamp, other, cell.r_clock, a.global);
    } else {
        how = relation(c, b, cell.r_stamp, other, cell.r_clock, a.global);
    }
    if (how == Unordered::no) return true;
    if (harmless(a, cell.r_who, how)) return false;
    const bool plain = !(cell.r_who & (is_atomic | is_volatile));
    if (a.atomic && plain && config.order == Order::lockstep) {
        const auto at = followed.find(a.at);
        if (at != followed.end() && at->second.count(thread_key(other, owner_of(cell.r_stamp))))
            return false;
        // The reader may be about to follow with an atomic: it is held before each.
        PlainRead r{a.at, other, owner_of(cell.r_stamp), place_of(cell.r_pc), Place(a.pc), ""};
        describe_race(r.text, sizeof r.text, "a plain read and an atomic", a, how, other, c.rank,
                      owner_of(cell.r_stamp) - owner_of(launch_first));
        plain_reads.push_back(r);
        return false;
    }
    report_race(c, a, how, a.atomic ? "a plain read and an atomic" : "a read and a write", other,
                cell.r_stamp, cell.r_pc, a.atomic || (cell.r_who & is_atomic));
    return false;
}

void remember_read(Context& c, BlockState& b, Cell& cell, const Access& a, uint16_t clock) {
    const unsigned w = (unsigned)warpSize;
    const uint16_t marks = (uint16_t)((a.atomic ? is_atomic : 0) |
                                      (a.is_volatile ? is_volatile : 0));
    const bool fresh = cell.r_stamp != b.stamp;
    if (fresh || ((cell.r_who & (is_atomic | is_volatile)) && !marks) ||
        (!(cell.r_who & many) && cell.r_lanes == bit(c.rank % w) &&
         (cell.r_who & rank_bits) == c.rank)) {
        cell.r_stamp = b.stamp;
        cell.r_who = (uint16_t)(c.rank | marks);
        cell.r_clock = clock;
        cell.r_lanes = bit(c.rank % w);
        cell.r_pc = keep_pc(a.pc);
        return;
    }
    if (marks && !(cell.r_who & (is_atomic | is_volatile))) return;  // the plain ones matter more
    if (cell.r_who & many) {  // of each of the two warps the newest
        if ((cell.r_who & rank_bits) / w == c.rank / w) {
            cell.r_who = (uint16_t)((cell.r_who & ~rank_bits) | c.rank);
            cell.r_clock = clock;
        } else if ((uint16_t)cell.r_lanes / w == c.rank / w) {
            cell.r_lanes = c.rank | (Mask)clock << 16;
        }
        return;
    }
    if ((cell.r_who & rank_bits) / w != c.rank / w) {
        cell.r_who |= many;
        cell.r_lanes = c.rank | (Mask)clock << 16;
        return;
    }
    cell.r_lanes |= bit(c.rank % w);
    cell.r_clock = std::min(cell.r_clock, clock);
}

void track(Context& c, BlockState& b, Cell& cell, const Access& a) {
    const uint16_t clock = b.threads[c.rank].clock;
    // The usual case first: nobody else has touched it in this interval.
    if (cell.w_stamp >= launch_first &&
        !(cell.w_stamp == b.stamp && (cell.w_who & rank_bits) == c.rank))
        check_against_write(c, b, cell, a);
    if (a.writes) {
        if (a.atomic && cell.r_stamp == b.stamp && (cell.r_who & rank_bits) == c.rank &&
            !(cell.r_who & many)) {
            cell.r_lanes &= ~bit(c.rank % (unsigned)warpSize);  // the read that led to this atomic
            if (!cell.r_lanes) cell.r_stamp = 0;
        }
        const bool own = !(cell.r_who & many) && (cell.r_who & rank_bits) == c.rank;
        if (check_against_reads(c, b, cell, a) && !own) cell.r_stamp = 0;
        cell.w_stamp = b.stamp;
        cell.w_pc = keep_pc(a.pc);
        cell.w_clock = clock;
        cell.w_who = (uint16_t)(c.rank | (a.atomic ? is_atomic : 0) |
                                (a.is_volatile ? is_volatile : 0) |
                                (a.atomic && a.scope == Scope::block ? block_scope : 0));
        return;
    }
    remember_read(c, b, cell, a, clock);
}

// ---- cells of a region

Cell* map_cells(size_t count) {
    void* at = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<Cell*>(at);
}

void refine(Region& r, unsigned shift) {  // one cell becomes several that remember the same
    const size_t old_count = (r.buffer.bytes >> r.shift) + 2;
    const size_t count = (r.buffer.bytes >> shift) + 8;
    Cell* finer = map_cells(count);
    const Cell* old = static_cast<Cell*>(r.cells);
    const size_t each = size_t{1} << (r.shift - shift);
    for (size_t i = 0; i < old_count; ++i)
        if (old[i].w_stamp | old[i].r_stamp)
            for (size_t k = 0; k < each && i * each + k < count; ++k) finer[i * each + k] = old[i];
    munmap(r.cells, r.cells_bytes);
    r.cells = finer;
    r.cells_bytes = count * sizeof(Cell);
    r.shift = (uint8_t)shift;
}

void track_range(Context& c, BlockState& b, Region& r, const Access& a) {
    if (SIMT_UNLIKELY(!r.cells)) {
        r.shift = 2;
        r.cells_bytes = ((r.buffer.bytes >> 2) + 8) * sizeof(Cell);
        r.cells = map_cells((r.buffer.bytes >> 2) + 8);
        if (!r.cells) return;
    }
    const size_t offset = (size_t)(a.at - r.buffer.begin);
    const size_t unit = size_t{1} << r.shift;
    if (SIMT_UNLIKELY((offset | a.bytes) & (unit - 1)))
        refine(r, (offset | a.bytes) & 1 ? 0 : 1);
    Cell* cells = static_cast<Cell*>(r.cells);
    const size_t last = (offset + a.bytes - 1) >> r.shift;
    for (size_t i = offset >> r.shift; i <= last; ++i) track(c, b, cells[i], a);
}

// ---- written or not

// Nothing at all: a struct that was written member by member has padding that nobody wrote.
bool unwritten(const uint8_t* bits, size_t offset, size_t n) {
    if (n == 4 && offset % 4 == 0) return !(bits[offset / 8] >> offset % 8 & 0xF);
    for (size_t i = offset; i < offset + n; ++i)
        if (bits[i / 8] >> i % 8 & 1) return false;
    return true;
}

void set_written(uint8_t* bits, size_t offset, size_t n) {
    if (n == 4 && offset % 4 == 0) {
        bits[offset / 8] |= (uint8_t)(0xF << offset % 8);
        return;
    }
    for (size_t i = offset; i < offset + n; ++i) bits[i / 8] |= (uint8_t)(1u << i % 8);
}

// ---- release and acquire

void acquire(Context& c, BlockState& b, const Access& a) {
    if (locations.empty()) return;
    auto found = locations.find(a.at);
    if (found == locations.end()) return;
    const Release* r = found->second;
    if (r->owner != b.number && (r->scope == Scope::block || a.scope == Scope::block)) return;
    Thread& t = b.threads[c.rank];
    const Release*& known = t.acquired[a.at];
    if (known != r && t.released.at != a.at) t.released.at = nullptr;
    known = r;
}

void release(Context& c, BlockState& b, const Access& a) {
    Thread& t = b.threads[c.rank];
    if (!t.fenced) return;
    // One that polls by atomics has released all there already, to whoever reads what is newest.
    const Scope scope = std::min(a.atomic ? a.scope : Scope::system, t.fence);
    const auto& last = t.released;
    if (last.at == a.at && last.stamp == b.stamp && last.clock == t.clock && last.scope == scope)
        return;
    t.released = {a.at, b.stamp, t.clock, scope};
    const unsigned w = (unsigned)warpSize, warp = c.rank / w;
    Release* r = new Release;
    r->owner = b.number;
    r->stamp = b.stamp;
    r->thread = (uint16_t)c.rank;
    r->clock = (uint16_t)(t.clock);
    r->scope = scope;
    for (unsigned l = 0; l < w; ++l) r->lanes[l] = known_of(b, warp, c.rank % w, l);
    if (const uint16_t* seen = seen_by(b, c.rank)) r->seen.assign(seen, seen + b.seen_row);
    auto found = locations.find(a.at);
    r->before = found == locations.end() ? nullptr : found->second;
    for (auto& [at, i] : t.acquired) r->inherited.push_back(i);
    for (auto& [at, i] : b.acquired) r->inherited.push_back(i);
    locations[a.at] = r;
    releases.push_back(r);
}

void forget_releases() {
    for (Release* r : releases) delete r;
    releases.clear();
    locations.clear();
}

// ---- one access

const char* shared_near(size_t offset, char* text, size_t size) {
    const SharedName* best = nullptr;
    for (const SharedName& s : shared_names)
        if (s.offset <= offset && (!best || s.offset > best->offset)) best = &s;
    if (!best) snprintf(text, size, "offset %zu of shared memory", offset);
    else
        snprintf(text, size, "byte %zu of '%s', which has %zu", offset - best->offset, best->name,
                 best->bytes);
    return text;
}

const char* verb(const Access& a) { return a.writes ? "write" : "read"; }

// ---- asynchronous copies

// Whether the access meets memory that one is filling: nobody, not even its thread, may touch that.
bool meets_flight(BlockState& b, size_t offset, const Access& a) {
    for (size_t i = offset / 4; i <= (offset + a.bytes - 1) / 4 && i < b.flights.size(); ++i) {
        const Flight& f = b.flights[i];
        if (!f.active) continue;
        report(201, Place(a.pc), place_of(f.pc),
               "%s of shared memory that an asynchronous copy of thread %u is still filling",
               verb(a), f.rank);
        return true;
    }
    return false;
}

// Whether the copy changes nothing: as where several threads load the same.
bool there_already(const char* to, const char* from, size_t size, size_t bytes) {
    const Region* r = region_of(from);
    if (bytes && (!r || r->where != Where::buffer || from < r->buffer.begin ||
                  from + bytes > r->buffer.begin + r->buffer.bytes))
        return false;
    return !memcmp(to, from, bytes) &&
           std::all_of(to + bytes, to + size, [](char byte) { return byte == 0; });
}

void take_off(Context& c, BlockState& b, size_t offset, const char* from, const Access& a) {
    b.flights.resize(std::max(b.flights.size(), (c.shared_touched + 3) / 4));
    for (size_t i = 0; i < a.bytes; i += 4) {
        Flight& f = b.flights[(offset + i) / 4];
        if (f.active && f.rank != c.rank && f.from != from + i)
            report(201, Place(a.pc), place_of(f.pc), "asynchronous copies of threads %u and %u to "
                   "the same shared memory", f.rank, c.rank);
        b.in_flight += !f.active;
        f = {from + i, keep_pc(a.pc), (uint16_t)c.rank, true};
    }
}

void access_shared(Context& c, BlockState& b, Region& r, Access& a) {
    if (r.buffer.begin != c.shared) {
        if (config.bounds)
            report(102, Place(a.pc), Place(), "%s of another block's shared memory", verb(a));
        return;
    }
    a.global = false;
    const size_t offset = (size_t)(a.at - c.shared);
    for (unsigned i = 0; i < a.bytes; ++i) {
        if (shared_valid[offset + i]) continue;
        char text[128];
        if (config.bounds)
            report(102, Place(a.pc), Place(), "%s of %u bytes at %s", verb(a), a.bytes,
                   shared_near(offset, text, sizeof text));
        return;
    }
    if (config.uninitialised) {
        char text[128];
        if (b.written.size() * 8 < offset + a.bytes) b.written.resize((c.shared_touched + 7) / 8);
        if ((!a.writes || a.atomic) && unwritten(b.written.data(), offset, a.bytes))
            report(107, Place(a.pc), Place(), "read of %u bytes at %s", a.bytes,
                   shared_near(offset, text, sizeof text));
        if (a.writes) set_written(b.written.data(), offset, a.bytes);
    }
    if (!config.races || (SIMT_UNLIKELY(b.in_flight) && meets_flight(b, offset, a))) return;
    track_range(c, b, r, a);
}

[[noreturn]] void stop(const Access& a, int code, const char* text) {
    report(code, Place(a.pc), Place(), "%s of %u bytes at %s", verb(a), a.bytes, text);
    set_launch_error(launch_illegal_address);
    settle_all();
    abandon();
}

void access_buffer(Context& c, BlockState& b, Region& r, Access& a) {
    const Buffer& buffer = r.buffer;
    if (SIMT_UNLIKELY(a.at < buffer.begin || a.at + a.bytes > buffer.begin + buffer.bytes)) {
        if (!config.bounds) return;
        char text[160];
        describe_address(a.at + a.bytes > buffer.begin + buffer.bytes && a.at < buffer.begin +
                         buffer.bytes ? buffer.begin + buffer.bytes : a.at, text, sizeof text);
        const bool mapped = a.at >= r.mapped + 4096 &&
                            a.at + a.bytes <= r.mapped + r.mapped_bytes - 4096;
        if (!mapped) stop(a, 101, text);
        report(101, Place(a.pc), Place(), "%s of %u bytes at %s", verb(a), a.bytes, text);
        return;
    }
    const size_t offset = (size_t)(a.at - buffer.begin);
    if (r.written) {
        if ((!a.writes || a.atomic) && unwritten(r.written, offset, a.bytes))
            report(108, Place(a.pc), Place(), "read of %u bytes at offset %zu of buffer #%u "
                   "(%zu bytes)", a.bytes, offset, r.number, buffer.bytes);
        if (a.writes) set_written(r.written, offset, a.bytes);
    }
    if (config.races) track_range(c, b, r, a);
}

void access_heap(Context& c, BlockState& b, Region& r, Access& a) {
    const HeapBlock* found = heap_block(a.at);
    const bool inside = found && !found->freed && a.at + a.bytes <= found->begin + found->bytes;
    if (SIMT_UNLIKELY(!inside)) {
        if (!config.bounds) return;
        const bool freed = found && found->freed && a.at < found->begin + found->extent;
        const bool crosses = found && !freed && a.at < found->begin + found->bytes;
        char text[160];
        describe_heap(crosses ? found->begin + found->bytes : a.at, text, sizeof text);
        report(freed ? 105 : 101, Place(a.pc), Place(), "%s of %u bytes at %s", verb(a), a.bytes,
               text);
        return;
    }
    if (r.written) {
        const size_t offset = (size_t)(a.at - r.buffer.begin);
        if ((!a.writes || a.atomic) && unwritten(r.written, offset, a.bytes))
            report(108, Place(a.pc), Place(), "read of %u bytes at offset %zu of a block of the "
                   "device's heap (%zu bytes)", a.bytes, (size_t)(a.at - found->begin),
                   found->bytes);
        if (a.writes) set_written(r.written, offset, a.bytes);
    }
    if (config.races) track_range(c, b, r, a);
}

// ---- what kernels see of a module's data: what was there when it was loaded, and what the device
// has done since. On a GPU host code has a memory of its own and changes nothing of that.

struct Held {
    Data data;                         // as the device has it
    uint8_t* written;                  // a bit for each byte that this launch's kernel has written
    std::unordered_set<size_t> pages;  // in which there are such
};
std::vector<Held> held;
std::unordered_set<const void*> held_of;  // the modules
constexpr size_t page_bytes = 4096;

// Memory is taken as it is touched: host code may have arrays that no kernel reads.
void hold(const void* p) {
    Dl_info info;
    if (!config.bounds || !dladdr(p, &info) || !held_of.insert(info.dli_fbase).second) return;
    for (const Data& data : data_of(p))
        if (char* bits = zeros(data.bytes / 8 + 1))
            held.push_back({data, reinterpret_cast<uint8_t*>(bits), {}});
}

void note_written(Held& h, size_t offset, size_t bytes) {
    set_written(h.written, offset, bytes);
    h.pages.insert({offset / page_bytes, (offset + bytes - 1) / page_bytes});
}

// After a launch: what its kernel has written is what the device has.
void keep_held() {
    for (Held& h : held) {
        for (const size_t page : h.pages) {
            const size_t first = page * page_bytes;
            const size_t last = std::min(first + page_bytes, h.data.bytes);
            for (size_t i = first; i < last; ++i)
                if (h.written[i / 8] >> i % 8 & 1) h.data.initial[i] = h.data.begin[i];
            memset(h.written + first / 8, 0, (last - first + 7) / 8);
        }
        h.pages.clear();
    }
}

bool is_managed(const Data& data, size_t offset) {
    return std::any_of(data.managed.begin(), data.managed.end(), [&](const auto& m) {
        return offset >= m.first && offset < m.second;
    });
}

// Whether a kernel reads there what host code has put there, of which it is told once.
bool is_hosts(const Access& a) {
    for (Held& h : held) {
        const size_t offset = (size_t)(a.at - h.data.begin);
        if (offset >= h.data.bytes) continue;
        const size_t bytes = std::min<size_t>(a.bytes, h.data.bytes - offset);
        const char* was = h.data.initial + offset;
        const bool reads = !a.writes || a.atomic;
        bool found = false;
        for (size_t i = reads && memcmp(a.at, was, bytes) ? 0 : bytes; i < bytes; ++i)
            found |= a.at[i] != was[i] && unwritten(h.written, offset + i, 1) &&
                     !is_managed(h.data, offset + i);
        if (a.writes || found) note_written(h, offset, bytes);
        return found;
    }
    return false;
}

Region* image_of(const void* p) {  // a module's own data, such as __device__ variables
    Dl_info info;
    if (!dladdr(p, &info)) return nullptr;
    char* page = reinterpret_cast<char*>((uintptr_t)p & ~uintptr_t{4095});
    Region* r = add_region(Where::image, page, 4096);
    r->constants = is_constant(page, 4096);
    return r;
}

void access_image(Context& c, BlockState& b, Region& r, const Access& a) {
    if (SIMT_UNLIKELY(a.writes && r.constants && config.bounds) && is_constant(a.at, a.bytes))
        report(111, Place(a.pc), Place(), "write of %u bytes to a __constant__ variable", a.bytes);
    if (config.bounds && is_hosts(a))
        report(119, Place(a.pc), Place(), "%s of %u bytes that host code has written", verb(a),
               a.bytes);
    if (config.races) track_range(c, b, r, a);
}

void access_unknown(Context& c, BlockState& b, Access& a) {
    const char* closure = static_cast<const char*>(running->closure);
    if (a.at >= closure && a.at + a.bytes <= closure + running->bytes) return;
    if (Region* r = image_of(a.at)) {
        a.global = true;
        return access_image(c, b, *r, a);
    }
    if (!config.bounds) return;
    char text[160];
    describe_address(a.at, text, sizeof text);
    const Region* near = region_near(a.at);
    const int buffer = near && near->where == Where::freed ? 105 : 101;
    stop(a, near ? buffer : (uintptr_t)a.at < 4096 ? 112 : 104, text);
}

void access_stack(Context& c, const Region& r, const Access& a) {
    const size_t number = (size_t)(a.at - r.buffer.begin) / c.stack_bytes;
    if (r.buffer.begin == c.stacks && number == (size_t)c.stack) return;
    if (config.bounds)
        report(109, Place(a.pc), Place(), "%s of %u bytes on the stack of another thread", verb(a),
               a.bytes);
}

bool in_thread_local(const char* a) {  // threadIdx and its kin, which lie together
    return (size_t)(a - reinterpret_cast<const char*>(&block) + 512) < 1024;
}

void dispatch(Context& c, BlockState& b, Access& a) {
    Region* r = region_of(a.at);
    if (SIMT_UNLIKELY(!r)) return access_unknown(c, b, a);
    switch (r->where) {
        case Where::stacks: return access_stack(c, *r, a);
        case Where::shared: return access_shared(c, b, *r, a);
        case Where::buffer: return access_buffer(c, b, *r, a);
        case Where::freed: {
            char text[160];
            describe_address(a.at, text, sizeof text);
            if (config.bounds) stop(a, 105, text);
            return;
        }
        case Where::image: return access_image(c, b, *r, a);
        case Where::heap: return access_heap(c, b, *r, a);
        case Where::unknown: return;
    }
}

void access(void* at, unsigned bytes, bool writes, const void* pc, bool aligned = true,
            bool is_volatile = false) {
    if (!block || !running) return;
    char* address = static_cast<char*>(at);
    if (in_thread_local(address)) return;
    Context& c = context();
    if ((size_t)(address - reinterpret_cast<char*>(&c)) < sizeof(Context)) return;
    // The thread's own stack: most accesses of an unoptimised build.
    if ((size_t)(address - c.stacks - (size_t)c.stack * c.stack_bytes) < c.stack_bytes) return;
    if (SIMT_UNLIKELY(config.order == Order::lockstep)) step();
    if (SIMT_UNLIKELY(pending.active)) settle_pending();
    BlockState& b = state(c);
    // A struct of 16 bytes may be aligned to 8; where it is not, UBSan's callback knows its type.
    const unsigned off = (unsigned)((uintptr_t)at & (std::min(bytes, 8u) - 1));
    if (config.alignment && aligned && off)
        report(106, Place(pc), Place(), "%u-byte access at an address that is %u bytes off", bytes,
               off);
    Access a{address, bytes, writes, false, is_volatile, true, Scope::system, pc};
    // In lock-step others come between a thread's read and its atomic: the block's end tells.
    if (SIMT_UNLIKELY(!plain_reads.empty()) && config.order != Order::lockstep &&
        (plain_reads.back().rank != c.rank || plain_reads.back().block != b.number))
        settle_plain_reads();
    if (config.counters) counters::access(c, address, bytes, writes, pc);
    if (SIMT_UNLIKELY(is_volatile && !writes)) acquire(c, b, a);
    dispatch(c, b, a);
    if (SIMT_UNLIKELY(writes && b.threads[c.rank].fenced)) {
        if (is_volatile) release(c, b, a);
        else if (a.global) b.threads[c.rank].fenced = false;
    }
    if (SIMT_UNLIKELY(config.preempt)) {
        c.random = c.random * 6364136223846793005ull + 1442695040888963407ull;
        if ((c.random >> 33) % config.preempt == 0) spin();
    }
}

}  // namespace

void atomic_access(const volatile void* p, size_t size, Scope scope, bool writes, const void* pc) {
    if (!block || !running || !checking()) return;
    Context& c = context();
    BlockState& b = state(c);
    char* address = static_cast<char*>(const_cast<void*>(p));
    if (config.order == Order::lockstep) step();
    if (pending.active) settle_pending();
    if (!plain_reads.empty()) forget_plain_read(address, c.rank, b.number);
    if (config.order == Order::lockstep) followed[address].insert(thread_key(c.rank, b.number));
    Access a{address, (unsigned)size, writes, true, false, true, scope, pc};
    if (config.counters && writes) counters::atomic(c, address, (unsigned)size, pc);
    acquire(c, b, a);
    if (writes) release(c, b, a);
    dispatch(c, b, a);
}

void copy_issued(const void* to, const void* from, size_t size, size_t bytes) {
    if (!block || !running || !config.races) return;
    Context& c = context();
    BlockState& b = state(c);
    if (pending.active) settle_pending();
    char* at = static_cast<char*>(const_cast<void*>(to));
    const char* source = static_cast<const char*>(from);
    const size_t offset = (size_t)(at - c.shared);
    if (offset + size > c.shared_touched) return;  // the wait tells
    if (there_already(at, source, size, bytes)) return;
    const void* pc = __builtin_return_address(0);
    Access a{at, (unsigned)size, true, false, false, false, Scope::system, pc, true};
    take_off(c, b, offset, source, a);
    track_range(c, b, *region_of(at), a);
}

void copy_landing(const void* to, size_t size) {
    if (!block || !running) return;
    Context& c = context();
    BlockState& b = state(c);
    const size_t first = (size_t)(static_cast<const char*>(to) - c.shared) / 4;
    for (size_t i = first; i < first + size / 4 && i < b.flights.size(); ++i) {
        b.in_flight -= b.flights[i].active;
        b.flights[i].active = false;
    }
}

namespace check {

void begin_launch(const Launch& launch) {
    running = &launch.call;
    launch_first = next_stamp;
    owners.clear();
    shared_names.clear();
    std::fill(shared_valid.begin(), shared_valid.end(), 0);
    std::fill_n(shared_valid.begin(), std::min(launch.shape.dynamic, shared_arena), 1);
    if (launch.shape.dynamic) shared_names.push_back({0, launch.shape.dynamic, "dynamic memory"});
    counters::begin_launch(launch);
    hold(reinterpret_cast<const void*>(launch.call.run));
}

void copied(const void* p, size_t bytes) {
    hold(p);
    for (Held& h : held) {
        const size_t offset = (size_t)(static_cast<const char*>(p) - h.data.begin);
        if (offset < h.data.bytes)
            memcpy(h.data.initial + offset, p, std::min(bytes, h.data.bytes - offset));
    }
}

void end_launch() {
    settle_all();
    keep_held();
    followed.clear();
    counters::end_launch();
    forget_releases();
    running = nullptr;
}

void forget(Context& c) { delete static_cast<BlockState*>(c.checker); }

void begin_block(Context& c) {
    settle_all();
    if (!c.checker) c.checker = new BlockState;
    BlockState& b = state(c);
    b.number = next_block++;
    b.stamp = new_stamp(b.number);
    for (unsigned i = 0; i < c.threads; ++i) {
        Thread& t = b.threads[i];
        t.clock = 0;
        t.released.at = nullptr;
        t.fenced = false;
        if (!t.acquired.empty()) t.acquired.clear();
    }
    b.acquired.clear();
    b.mbarriers.clear();
    b.flattened = false;
    b.seen_stamp = 0;
    for (Meeting& m : b.named) m.stamp = 0;
    b.written.assign((c.shared_touched + 7) / 8, 0);
    b.flights.clear();
    b.in_flight = 0;
}

void end_block(Context& c) {
    settle_all();
    counters::end_block(c);
}

void barrier(Context& c) {
    BlockState& b = state(c);
    b.stamp = new_stamp(b.number);
    for (unsigned i = 0; i < c.threads; ++i) {
        Thread& t = b.threads[i];
        t.clock = 0;
        if (t.acquired.empty()) continue;
        for (auto& [at, r] : t.acquired) b.acquired[at] = r;
        t.acquired.clear();
        b.flattened = false;
    }
    counters::barrier(c);
}

void grid_barrier() {
    launch_first = next_stamp;
    owners.clear();
    forget_releases();
}

// After the same of `known`.
static void join_seen(Context& c, BlockState& b, unsigned warp, Mask present) {
    const unsigned first = warp * (unsigned)warpSize;
    uint16_t joined[max_threads] = {};
    for_lanes(present, [&](unsigned l) { join(joined, seen_by(b, first + l), b.seen_row); });
    for (unsigned l = 0; first + l < c.threads && l < (unsigned)warpSize; ++l)
        joined[first + l] = std::max(
            joined[first + l], b.warps[warp].known[__builtin_ctzll(present)][l]);
    for_lanes(present, [&](unsigned l) { join(seen_by(b, first + l), joined, b.seen_row); });
}

// Everything that one of `present` knows, all of them know from here on.
void warp_sync(Context& c, unsigned warp, Mask present) {
    BlockState& b = state(c);
    start_clocks(b, warp);
    WarpClocks& w = b.warps[warp];
    Thread* threads = &b.threads[warp * (size_t)warpSize];
    uint16_t joined[64] = {};
    Acquired acquired;
    for_lanes(present, [&](unsigned l) {
        w.known[l][l] = (uint16_t)(threads[l].clock + 1);
        for (int o = 0; o < warpSize; ++o) joined[o] = std::max(joined[o], w.known[l][o]);
        for (auto& [at, r] : threads[l].acquired) acquired[at] = r;
    });
    for_lanes(present, [&](unsigned l) {
        memcpy(w.known[l], joined, sizeof joined);
        threads[l].clock++;
        if (!acquired.empty()) threads[l].acquired = acquired;
    });
    if (b.seen_stamp == b.stamp) join_seen(c, b, warp, present);
}

// What a thread knows, those that leave the barrier know too.
static void bring(Context& c, BlockState& b, Meeting& m, unsigned rank) {
    start_seen(c, b);
    if (m.stamp != b.stamp) {
        m.seen.assign(b.seen_row, 0);
        m.acquired.clear();
        m.stamp = b.stamp;
    }
    Thread& t = b.threads[rank];
    uint16_t* seen = seen_by(b, rank);
    seen[rank] = ++t.clock;
    join(m.seen.data(), seen, b.seen_row);
    for (auto& [at, r] : t.acquired) m.acquired[at] = r;
}
static void take_along(BlockState& b, const Meeting& m, unsigned rank) {
    join(seen_by(b, rank), m.seen.data(), b.seen_row);
    for (auto& [at, r] : m.acquired) b.threads[rank].acquired[at] = r;
    b.threads[rank].released.at = nullptr;
}

void named_arrive(Context& c, unsigned id, const Fiber& f) {
    BlockState& b = state(c);
    bring(c, b, b.named[id], f.warp * (unsigned)warpSize + f.lane);
}

void named_barrier(Context& c, unsigned id, const Fiber& last, bool wait) {
    named_arrive(c, id, last);
    BlockState& b = state(c);
    Meeting& m = b.named[id];
    for (unsigned i = 0; i < c.threads; ++i) {
        const Fiber& f = c.table[i];
        if (!(&f == &last ? wait : f.state == State::named && f.named == id)) continue;
        take_along(b, m, i);
    }
    m.stamp = 0;  // it begins anew
}

void forget(Region& r, const char* begin, size_t bytes) {
    if (!r.cells) return;
    const size_t first = (size_t)(begin - r.buffer.begin) >> r.shift;
    memset((void*)(static_cast<Cell*>(r.cells) + first), 0, (bytes >> r.shift) * sizeof(Cell));
}

void place_shared(Context&, size_t offset, size_t bytes, const char* name) {
    std::fill_n(shared_valid.begin() + (ptrdiff_t)offset, bytes, 1);
    shared_names.push_back({offset, bytes, name});
}

}  // namespace check

void copy_engine(bool moves) {
    if (block && running && config.counters) counters::copy_engine(context(), moves);
}

// Phases are not told apart: a thread that is late sees what came to the barrier after its phase, too.
void mbarrier_arrived(const void* barrier) {
    if (!block || !running || !checking()) return;
    Context& c = context();
    if (pending.active) settle_pending();
    BlockState& b = state(c);
    check::bring(c, b, b.mbarriers[barrier], c.rank);
}
void mbarrier_passed(const void* barrier) {
    if (!block || !running || !checking()) return;
    Context& c = context();
    if (pending.active) settle_pending();
    BlockState& b = state(c);
    const auto found = b.mbarriers.find(barrier);
    if (found == b.mbarriers.end() || found->second.stamp != b.stamp) return;
    check::take_along(b, found->second, c.rank);
}

void fence(Scope scope) {
    if (!block) return;
    if (checking() && running) {
        Context& c = context();
        Thread& t = state(c).threads[c.rank];
        t.fenced = true;
        t.fence = scope;
        t.clock++;  // accesses from here on come after it
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

}  // namespace simt

// ---- the callbacks of -fsanitize=thread

#define SIMT_CALLBACK extern "C" __attribute__((visibility("default")))
#define SIMT_PC __builtin_return_address(0)
#define SIMT_SIZES(n)                                                                             \
    SIMT_CALLBACK void __tsan_read##n(void* a) { simt::access(a, n, false, SIMT_PC); }            \
    SIMT_CALLBACK void __tsan_write##n(void* a) { simt::access(a, n, true, SIMT_PC); }            \
    SIMT_CALLBACK void __tsan_unaligned_read##n(void* a) {                                        \
        simt::access(a, n, false, SIMT_PC, false);                                                \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_unaligned_write##n(void* a) {                                       \
        simt::access(a, n, true, SIMT_PC, false);                                                 \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_volatile_read##n(void* a) {                                         \
        simt::access(a, n, false, SIMT_PC, true, true);                                           \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_volatile_write##n(void* a) {                                        \
        simt::access(a, n, true, SIMT_PC, true, true);                                            \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_unaligned_volatile_read##n(void* a) {                               \
        simt::access(a, n, false, SIMT_PC, false, true);                                          \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_unaligned_volatile_write##n(void* a) {                              \
        simt::access(a, n, true, SIMT_PC, false, true);                                           \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_read_write##n(void* a) {                                            \
        simt::access(a, n, false, SIMT_PC);                                                       \
        simt::access(a, n, true, SIMT_PC);                                                        \
    }
SIMT_SIZES(1)
SIMT_SIZES(2)
SIMT_SIZES(4)
SIMT_SIZES(8)
SIMT_SIZES(16)

static void range(void* a, size_t n, bool writes, const void* pc) {
    char* at = static_cast<char*>(a);
    while (n) {  // pieces that the cells like: aligned words, then bytes
        const unsigned piece = n >= 4 && (uintptr_t)at % 4 == 0 ? 4 : 1;
        simt::access(at, piece, writes, pc, false);
        at += piece;
        n -= piece;
    }
}
SIMT_CALLBACK void __tsan_read_range(void* a, size_t n) { range(a, n, false, SIMT_PC); }
SIMT_CALLBACK void __tsan_write_range(void* a, size_t n) { range(a, n, true, SIMT_PC); }
SIMT_CALLBACK void* __tsan_memcpy(void* to, const void* from, size_t n) {
    range(const_cast<void*>(from), n, false, SIMT_PC);
    range(to, n, true, SIMT_PC);
    return memcpy(to, from, n);
}
SIMT_CALLBACK void* __tsan_memmove(void* to, const void* from, size_t n) {
    range(const_cast<void*>(from), n, false, SIMT_PC);
    range(to, n, true, SIMT_PC);
    return memmove(to, from, n);
}
SIMT_CALLBACK void* __tsan_memset(void* to, int value, size_t n) {
    range(to, n, true, SIMT_PC);
    return memset(to, value, n);
}
SIMT_CALLBACK void __tsan_init() {}
SIMT_CALLBACK void __tsan_func_entry(void*) {}
SIMT_CALLBACK void __tsan_func_exit() {}
SIMT_CALLBACK void __tsan_vptr_read(void**) {}
SIMT_CALLBACK void __tsan_vptr_update(void**, void*) {}
SIMT_CALLBACK void __tsan_ignore_thread_begin() {}
SIMT_CALLBACK void __tsan_ignore_thread_end() {}

// Host code of the same file may use std::atomic: carried out as they are, without a check.
#define SIMT_ATOMICS(bits, T)                                                                     \
    SIMT_CALLBACK T __tsan_atomic##bits##_load(const volatile T* a, int) {                        \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                              \
    }                                                                                             \
    SIMT_CALLBACK void __tsan_atomic##bits##_store(volatile T* a, T v, int) {                     \
        __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                 \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                     \
        return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                       \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                    \
        return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                    \
        return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int) {                    \
        return __atomic_fetch_and(a, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int) {                     \
        return __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_fetch_xor(volatile T* a, T v, int) {                    \
        return __atomic_fetch_xor(a, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                             \
    SIMT_CALLBACK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* expected,   \
                                                                    T v, int, int) {              \
        return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST,               \
                                           __ATOMIC_SEQ_CST);                                     \
    }                                                                                             \
    SIMT_CALLBACK int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* expected,     \
                                                                  T v, int, int) {                \
        return __atomic_compare_exchange_n(a, expected, v, true, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                     \
    }                                                                                             \
    SIMT_CALLBACK T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T expected, T v,    \
                                                               int, int) {                        \
        __atomic_compare_exchange_n(a, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
        return expected;                                                                          \
    }
SIMT_ATOMICS(8, uint8_t)
SIMT_ATOMICS(16, uint16_t)
SIMT_ATOMICS(32, uint32_t)
SIMT_ATOMICS(64, uint64_t)
SIMT_CALLBACK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SIMT_CALLBACK void __tsan_atomic_signal_fence(int) {}
