// State of a wave, its group and the machine; memory with bounds.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "instruction.h"

namespace isa {

using f16 = _Float16;
constexpr int LANES = 64;
// Numbers of scalar registers, one for all families; beyond 128 what has no number there.
constexpr u16 VCC = 106, M0 = 124, EXEC = 126, TTMP = 108, NOWHERE = 252;
constexpr u16 SPARE = 512;                             // a vector register that no code names
constexpr int VECTORS = 512 + 4;
constexpr u16 FLUSHED = VECTORS;                       // sources without denormals, see modes.cpp
constexpr u32 USUAL_MODE = 0xf0;                       // to the nearest, with all denormals
// Where flat addresses reach LDS and scratch: their upper halves.
constexpr u64 SHARED_APERTURE = 0x00010000, PRIVATE_APERTURE = 0x00020000;

enum class Finding : u32 {
    none,
    load_outside,
    store_outside,
    lds_outside,
    unmodelled,
    hangs,
    limit,
    trap,
    bad_jump,
    misaligned,
    mode,
    unwaited,
    unwaited_lds,
    lds_race,
    in_step,
    room,
    too_soon,
    unfilled_lds,
    flushed_factor,
};

// What is looked for, as bits.
enum Check : u32 { WAITS = 1, RACES = 2, COUNTS = 4 };

struct Found {
    u32 kind, pc, wave, lane;
    u64 address;
    u32 group[3], name;
};

struct Range {
    u64 low, high;
    u32 writable, number;
};

struct Machine;
class Scoreboard;

// What the lanes of one instruction ask memory for; `at` is counted from where a buffer begins, as
// on a device all begin at a line.
enum class Memory : u8 { global, lds, scratch };
struct Asked {
    u64 at;
    u32 bytes;
    u8 lane;
    Memory memory;
    bool store;
};
struct Traffic {
    Asked asked[8 * LANES];
    u32 count = 0;

    void add(Memory memory, u64 at, u32 bytes, bool store, int lane) {
        if (count < sizeof asked / sizeof *asked)
            asked[count++] = {at, bytes, (u8)lane, memory, store};
    }
};

// The last waves that wrote and read a byte of LDS, and when; `many`: others read it since then;
// `atomic`: it was written by reading, changing and writing it at once.
struct Shadow {
    u32 written = 0, read = 0;
    u16 writer = 0, reader = 0;
    bool many = false, atomic = false;
};

// The load that fills a byte of LDS straight from memory: its number on its wave's scoreboard.
struct Fill {
    u32 number = 0;
    u16 wave = 0;
};

struct Group {
    std::vector<u8> lds;
    std::vector<Shadow> shadow;                        // as long as LDS where races are looked for
    std::vector<Fill> fills;                           // likewise, of a group that loads so
    u32 clock = 1;                                     // goes on where waves may meet
    u32 id[3] = {};
    std::vector<Wave*> waves;
    u32 running = 0;
};

struct Wave {
    alignas(64) u32 v[VECTORS + 6][LANES];
    alignas(64) u32 s[256 + 16];
    u32 scc, index, number, size;
    u32 mode;
    bool done, at_barrier, yields;
    u32 scratch_bytes;                                 // a lane
    std::vector<u8> scratch;
    Machine* machine;
    Group* group;
    u64 executed;
    // What it was when it was last looked at, for waves that turn in circles.
    std::vector<u32> snapshot;
    u64 snapshot_changes, branches;
    u32 snapshot_index;
    bool circles;
    std::shared_ptr<Scoreboard> board;                 // where waits are looked at
    u32 synced;                                        // what was before this is ordered

    u64 pair(int r) const {
        u64 x;
        memcpy(&x, &s[r], 8);
        return x;
    }
    void set_pair(int r, u64 x) { memcpy(&s[r], &x, 8); }
    u64 exec() const { return pair(EXEC); }
    u64 vcc() const { return size == 64 ? pair(VCC) : s[VCC]; }
};

struct Machine {
    std::vector<Range> ranges;                         // by address, apart from each other
    const Range* last = nullptr;
    std::vector<Found> found;
    u64 findings = 0;
    u64 base = 0;                                      // of the image
    const Program* program = nullptr;
    u64 executed = 0, changes = 0;
    bool watches = false, stopped = false;
    bool flushes = false;                              // a product took a factor for zero
    bool fnuz = false;                                 // the processor's small floats
    bool ieee = false;                                 // signalling NaNs go before numbers
    u32 vectors = 0, accumulators = 0;                 // registers of a lane
    u32 checks = 0;
    Traffic* traffic = nullptr;                        // where it is counted
    std::set<u64> told;

    // Of one instruction once: a loop has the same to say each time.
    void once(Finding kind, const Wave& w, const Instruction& i, u64 what, u32 lane = 0) {
        if (told.insert((u64)kind << 32 | i.pc).second)
            report(kind, w, i.pc, lane, what, i.name);
    }

    void report(Finding kind, const Wave& w, u32 pc, u32 lane, u64 address, u32 name = 0) {
        ++findings;
        if (found.size() < 256)
            found.push_back({(u32)kind, pc, w.number, lane, address,
                             {w.group->id[0], w.group->id[1], w.group->id[2]}, name});
    }
    // Ends the launch: what follows would say nothing.
    void stop(Finding kind, Wave& w, u32 pc, u32 lane, u64 address, u32 name = 0) {
        if (found.size() == 256) found.pop_back();
        report(kind, w, pc, lane, address, name);
        stopped = w.done = true;
    }
};

inline const Range* range_of(Machine& m, u64 address, u64 bytes) {
    const Range* r = m.last;
    if (r && address >= r->low && address + bytes <= r->high && address + bytes >= address)
        return r;
    for (const Range& k : m.ranges)
        if (address >= k.low && address + bytes <= k.high && address + bytes >= address)
            return m.last = &k;
    return nullptr;
}

inline u8* global_at(Wave& w, const Instruction& i, u64 address, u32 bytes, bool store, int lane) {
    const Range* r = range_of(*w.machine, address, bytes);
    if (__builtin_expect(r && (!store || r->writable), 1)) {
        if (Traffic* t = w.machine->traffic)
            t->add(Memory::global, (u64)r->number << 48 | (address - r->low), bytes, store, lane);
        return (u8*)address;
    }
    const auto kind = store ? Finding::store_outside : Finding::load_outside;
    w.machine->report(kind, w, i.pc, (u32)lane, address, i.name);
    return nullptr;
}

inline u8* lds_at(Wave& w, const Instruction& i, u64 address, u32 bytes, int lane) {
    if (__builtin_expect(address + bytes <= w.group->lds.size(), 1)) {
        if (Traffic* t = w.machine->traffic) t->add(Memory::lds, address, bytes, false, lane);
        return w.group->lds.data() + address;
    }
    w.machine->report(Finding::lds_outside, w, i.pc, (u32)lane, address, i.name);
    return nullptr;
}

inline u8* scratch_at(Wave& w, const Instruction& i, u32 offset, u32 bytes, int lane) {
    if ((u64)offset + bytes <= w.scratch_bytes) {
        if (Traffic* t = w.machine->traffic) t->add(Memory::scratch, offset, bytes, false, lane);
        return w.scratch.data() + (size_t)lane * w.scratch_bytes + offset;
    }
    w.machine->report(Finding::load_outside, w, i.pc, (u32)lane, offset, i.name);
    return nullptr;
}

inline u8* flat_at(Wave& w, const Instruction& i, u64 address, u32 bytes, bool store, int lane) {
    if (address >> 32 == SHARED_APERTURE) return lds_at(w, i, (u32)address, bytes, lane);
    if (address >> 32 == PRIVATE_APERTURE) return scratch_at(w, i, (u32)address, bytes, lane);
    return global_at(w, i, address, bytes, store, lane);
}

// A store that others may wait for: counted only while waves are suspected of waiting.
inline void put(Machine& m, u8* to, const void* from, u32 bytes) {
    if (__builtin_expect(m.watches, 0) && memcmp(to, from, bytes)) ++m.changes;
    memcpy(to, from, bytes);
}

template <class To, class From> inline To as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To r;
    memcpy(&r, &x, sizeof r);
    return r;
}
inline float f32(u32 x) { return as<float>(x); }
inline u32 bits(float x) { return as<u32>(x); }
inline f16 half(u32 x) { return as<f16>((u16)x); }
inline u32 bits16(f16 x) { return as<u16>(x); }

}  // namespace isa
