// How a run is done, as against what is modelled (simt::facts): set by simt_configure().
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

// forward, reverse: by rank. lockstep: forward, but in checked builds each thread's n-th access to
// memory that others see comes before any thread's next: as lanes that advance together do, where
// they take the same branches. random: any runnable thread. priority: warps have random priorities
// that change when they poll: an unfair schedule, which finds what a fair one never shows.
enum class Order : uint8_t { forward, lockstep, reverse, random, priority };

struct Config {
    Order order = Order::forward;
    uint64_t seed = 1;
    int workers = 1;           // OS threads that run blocks
    double limit_s = 4;        // without a block that finishes; 0: none
    size_t stack_bytes = 640 << 10;  // a GPU's 512 KB of local memory, and room for calls
    bool races = false, bounds = false, uninitialised = false, alignment = false;
    bool counters = false;
    bool account = false;      // managed and pinned memory are closed too, to see what host code reads
    unsigned preempt = 0;      // checked builds: switch threads at one access in this many
    unsigned launches = 0;     // after so many the program ends well; 0: never
    char findings[512] = "";   // JSON lines are appended here (sink.h); empty: text to stderr
    char record[512] = "";     // record.cpp appends here what launches did to memory; empty: no
    size_t record_bytes = 64 << 20;  // of contents in it; of what is beyond, digests only
};
extern Config config;

inline bool checking() {
    return config.races || config.bounds || config.uninitialised || config.alignment ||
           config.counters || config.preempt || config.order == Order::lockstep;
}

}  // namespace simt
