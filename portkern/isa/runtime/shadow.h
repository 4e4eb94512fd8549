// Two waves at one byte of LDS, with nothing between them that orders them: no barrier, no atomic.
#pragma once
#include "scoreboard.h"

namespace isa {

// Whatever was done to LDS before is ordered for this wave.
inline void meet(Wave& w) { w.synced = ++w.group->clock; }

// Loads straight into LDS may be outstanding at a barrier, as pipelines leave those of later turns:
// what counts is whether they were waited for before their bytes are read.
inline void lds_fills(Wave& w, const u8* at, u32 bytes) {
    Group& g = *w.group;
    if (!w.board) return;
    if (g.fills.empty()) g.fills.resize(g.lds.size());
    const size_t first = (size_t)(at - g.lds.data());
    for (size_t k = first; k < first + bytes; ++k)
        g.fills[k] = {w.board->vectors(), (u16)w.number};
}

inline void lds_filled(Wave& w, const Instruction& i, const u8* at, u32 bytes, int lane) {
    const Group& g = *w.group;
    const size_t first = (size_t)(at - g.lds.data());
    for (size_t k = first; k < first + bytes; ++k)
        if (const Fill f = g.fills[k]; !g.waves[f.wave]->board->done(f.number))
            w.machine->once(Finding::unfilled_lds, w, i, k, (u32)lane);
}

inline void lds_read(Wave& w, const Instruction& i, const u8* at, u32 bytes, int lane) {
    Group& g = *w.group;
    if (__builtin_expect(!g.fills.empty(), 0)) lds_filled(w, i, at, bytes, lane);
    if (__builtin_expect(g.shadow.empty(), 1)) return;
    const size_t first = (size_t)(at - g.lds.data());
    for (size_t k = first; k < first + bytes; ++k) {
        Shadow& s = g.shadow[k];
        const bool new_to_it = s.writer != w.number && s.written >= w.synced;
        if (new_to_it && s.atomic)  // compilers make plain loads of what reads atomically
            meet(w);
        else if (new_to_it)
            w.machine->once(Finding::lds_race, w, i, k, (u32)lane);
        s.many = s.read >= w.synced && (s.many || s.reader != w.number);
        s.reader = (u16)w.number, s.read = g.clock;
    }
}

// Before it is written. Who stores what is there already cannot be told from who does not.
inline void lds_written(Wave& w, const Instruction& i, const u8* at, const void* value, u32 bytes,
                        int lane) {
    Group& g = *w.group;
    if (__builtin_expect(g.shadow.empty(), 1) || !memcmp(at, value, bytes)) return;
    const size_t first = (size_t)(at - g.lds.data());
    for (size_t k = first; k < first + bytes; ++k) {
        Shadow& s = g.shadow[k];
        if (s.atomic && s.written >= w.synced) continue;
        const bool other_wrote = s.writer != w.number && s.written >= w.synced;
        const bool other_read = (s.many || s.reader != w.number) && s.read >= w.synced;
        if (other_wrote || other_read)
            w.machine->once(Finding::lds_race, w, i, k, (u32)lane);
        s.writer = (u16)w.number, s.written = g.clock, s.atomic = false;
    }
}

inline void lds_changed(Wave& w, const u8* at, u32 bytes) {
    Group& g = *w.group;
    if (__builtin_expect(g.shadow.empty(), 1)) return;
    const size_t first = (size_t)(at - g.lds.data());
    for (size_t k = first; k < first + bytes; ++k) {
        Shadow& s = g.shadow[k];
        s.writer = (u16)w.number, s.written = g.clock, s.atomic = true;
    }
}

}  // namespace isa
