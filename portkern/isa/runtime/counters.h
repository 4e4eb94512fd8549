// Exact counts of what a launch did: instructions, the lanes that took part, and what memory was
// asked for. They know nothing of time.
#pragma once
#include <algorithm>

#include "wave.h"

namespace isa {

// In the order of portkern/isa/counts.py. Of memory, an instruction with lanes that reach it is a
// request; `least` is what the same bytes would take at their best.
struct Totals {
    u64 waves, load_bytes, store_bytes, requests, lines, least_lines;
    u64 lds_bytes, lds_requests, lds_passes, least_lds_passes, scratch_bytes, scalar_bytes;
};

class Counter {
public:
    // `hits` and `lanes` have a place for each instruction of the program.
    Counter(Totals& totals, u64* hits, u64* lanes) : t_(totals), hits_(hits), lanes_(lanes) {}

    Traffic traffic;

    void begun() { ++t_.waves; }

    void before(const Wave& w, size_t at) {
        const u64 live = w.size == 64 ? ~0ull : 0xffffffffull;
        ++hits_[at], lanes_[at] += (u64)__builtin_popcountll(w.exec() & live);
    }

    void after(Access access) {
        const u32 n = traffic.count;
        if (!n) return;
        traffic.count = 0;
        const Asked* a = traffic.asked;
        if (access == Access::scalar)
            for (u32 k = 0; k < n; ++k) t_.scalar_bytes += a[k].bytes;
        else
            global(a, n), local(a, n);
        for (u32 k = 0; k < n; ++k)
            if (a[k].memory == Memory::scratch) t_.scratch_bytes += a[k].bytes;
    }

private:
    static constexpr u32 LINE = 128, BANKS = 32;

    Totals& t_;
    u64 *hits_, *lanes_;
    u64 units_[3 * 8 * LANES];

    // The number of different ones of units_[0, n).
    u32 different(u32 n) {
        if (n < 2) return n;
        if (!std::is_sorted(units_, units_ + n)) std::sort(units_, units_ + n);
        return (u32)(std::unique(units_, units_ + n) - units_);
    }

    void global(const Asked* a, u32 n) {
        u32 units = 0;
        u64 bytes = 0;
        for (u32 k = 0; k < n; ++k) {
            if (a[k].memory != Memory::global) continue;
            (a[k].store ? t_.store_bytes : t_.load_bytes) += a[k].bytes;
            bytes += a[k].bytes;
            for (u64 u = a[k].at / LINE; u <= (a[k].at + a[k].bytes - 1) / LINE; ++u)
                units_[units++] = u;
        }
        if (!units) return;
        const u64 lines = different(units);
        t_.requests++, t_.lines += lines;
        t_.least_lines += std::min(lines, (bytes + LINE - 1) / LINE);
    }

    // Lanes whose bytes fill all banks at once are served together, and one pass has one word of
    // each bank.
    void local(const Asked* a, u32 n) {
        bool any = false;
        for (u32 k = 0; k < n;) {
            if (a[k].memory != Memory::lds) {
                ++k;
                continue;
            }
            const u32 together = std::min(32u, 4 * BANKS / std::max(a[k].bytes, 4u));
            const u32 group = a[k].lane / together;
            u32 units = 0, last = a[k].lane;
            const u32 first = k;
            for (; k < n && a[k].memory == Memory::lds && a[k].lane / together == group; ++k) {
                if (k > first && a[k].lane <= last) break;  // the second place of one instruction
                last = a[k].lane;
                t_.lds_bytes += a[k].bytes;
                for (u64 u = a[k].at / 4; u <= (a[k].at + a[k].bytes - 1) / 4; ++u)
                    units_[units++] = u;
            }
            any = true;
            passes(different(units));
        }
        t_.lds_requests += any;
    }

    void passes(u32 words) {
        u32 in_bank[BANKS] = {}, most = 0;
        for (u32 k = 0; k < words; ++k) most = std::max(most, ++in_bank[units_[k] % BANKS]);
        t_.lds_passes += most;
        t_.least_lds_passes += (words + BANKS - 1) / BANKS;
    }
};

}  // namespace isa
