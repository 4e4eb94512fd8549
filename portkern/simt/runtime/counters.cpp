// Dynamic counts: what a warp's accesses cost a memory system with lines and banks. The k-th time a
// lane executes an access belongs to the k-th time its warp does.
#include "counters.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "launch.h"
#include "memory.h"

namespace simt::counters {
namespace {

constexpr unsigned banks = 32, bank_bytes = 4;

struct Totals {
    uint64_t loads, stores, load_bytes, store_bytes;  // by threads, global memory
    uint64_t requests, transactions, least;           // by warps; least: if perfectly coalesced
    uint64_t shared_loads, shared_stores, shared_requests, shared_passes, shared_least;
    uint64_t atomics, barriers, lanes, lane_slots, warps;
} totals;

struct Instance {  // one execution by a warp, as far as its lanes have come
    Mask lanes = 0;
    unsigned bytes = 0;
    std::vector<uint64_t> units;  // lines, or words of shared memory, each once
};

struct Spot {  // one access in the code, by one warp
    bool shared = false;
    std::vector<uint32_t> executed;     // by lane
    std::vector<Instance> open;         // executions that may still gain lanes
    uint32_t first = 0;                 // number of open[0]
};

struct Key {
    uint32_t block, warp;
    const void* pc;
    bool operator==(const Key& o) const {
        return block == o.block && warp == o.warp && pc == o.pc;
    }
};
struct Hash {
    size_t operator()(const Key& k) const {
        return ((size_t)k.pc * 0x9E3779B97F4A7C15ull) ^ ((size_t)k.block << 32 | k.warp);
    }
};
std::unordered_map<Key, Spot, Hash> spots;

struct Engine {  // a bulk copy that is being made, by the thread that asked for it
    bool moves = false;
    uint32_t thread = 0;
    uint64_t line = 0;  // the last one that it touched
} engine;

unsigned line_bytes() { return facts.hip ? 64 : 32; }  // AMD: a cache request; NVIDIA: a sector

void insert(std::vector<uint64_t>& set, uint64_t unit) {
    if (!set.empty() && set.back() == unit) return;
    if (std::find(set.begin(), set.end(), unit) == set.end()) set.push_back(unit);
}

void close_shared(const Instance& i) {
    unsigned in_bank[banks] = {};
    unsigned passes = 0;
    for (uint64_t word : i.units) passes = std::max(passes, ++in_bank[word % banks]);
    totals.shared_requests++;
    totals.shared_passes += passes;
    totals.shared_least += (i.units.size() + banks - 1) / banks;
}

void close(const Spot& s, const Instance& i) {
    if (!i.lanes) return;
    totals.lanes += (uint64_t)__builtin_popcountll(i.lanes);
    totals.lane_slots += (uint64_t)warpSize;
    if (s.shared) return close_shared(i);
    const uint64_t useful = (uint64_t)__builtin_popcountll(i.lanes) * i.bytes;
    totals.requests++;
    totals.transactions += i.units.size();
    totals.least += std::min<uint64_t>((useful + line_bytes() - 1) / line_bytes(), i.units.size());
}

void close_full(Spot& s, Mask all) {  // executions that every lane has made
    size_t done = 0;
    while (done < s.open.size() && (s.open[done].lanes & all) == all) close(s, s.open[done++]);
    s.open.erase(s.open.begin(), s.open.begin() + (ptrdiff_t)done);
    s.first += (uint32_t)done;
}

void add(Context& c, const char* at, unsigned bytes, bool shared, const void* pc) {
    const unsigned w = (unsigned)warpSize, lane = c.rank % w;
    Spot& s = spots[{(uint32_t)(c.index.x + c.index.y * 65536 + c.index.z * 7919), c.rank / w, pc}];
    s.shared = shared;
    if (s.executed.empty()) s.executed.assign(w, 0);
    const uint32_t number = s.executed[lane]++;
    if (number < s.first) return;
    if (number - s.first >= s.open.size()) s.open.resize(number - s.first + 1);
    Instance& i = s.open[number - s.first];
    i.lanes |= bit(lane);
    i.bytes = bytes;
    const uint64_t unit = shared ? bank_bytes : line_bytes();
    const uint64_t from = shared ? (uint64_t)(at - c.shared) : (uint64_t)at;
    for (uint64_t u = from / unit; u <= (from + bytes - 1) / unit; ++u) insert(i.units, u);
    const unsigned lanes = std::min(w, c.threads - c.rank / w * w);
    if (number == s.first && lane == lanes - 1) close_full(s, lanes == 64 ? ~Mask{0} : bit(lanes) - 1);
}

}  // namespace

void begin_launch(const Launch& launch) {
    if (!config.counters) return;
    const auto& block = launch.shape.block;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z, wide = (uint64_t)warpSize;
    totals = {};
    totals.warps = launch.blocks * ((threads + wide - 1) / wide);
    spots.clear();
}

void end_block(Context&) {
    if (!config.counters) return;
    for (auto& [key, s] : spots)
        for (const Instance& i : s.open) close(s, i);
    spots.clear();
}

void barrier(Context&) {
    if (config.counters) totals.barriers++;
}

// The copy engine moves whole lines, of one request; its shared side takes no lane's time.
static void engine_access(const char* at, unsigned bytes) {
    const uint64_t last = ((uint64_t)at + bytes - 1) / line_bytes();
    for (uint64_t line = (uint64_t)at / line_bytes(); line <= last; ++line) {
        if (line == engine.line) continue;
        engine.line = line;
        totals.transactions++;
        totals.least++;
    }
}

void access(Context& c, const char* at, unsigned bytes, bool writes, const void* pc) {
    const Region* r = region_of(at);
    if (!r || (r->where != Where::buffer && r->where != Where::shared)) return;
    const bool shared = r->where == Where::shared;
    const bool moved = engine.moves && engine.thread == c.rank;
    if (shared) {
        if (moved) return;
        ++(writes ? totals.shared_stores : totals.shared_loads);
    } else {
        ++(writes ? totals.stores : totals.loads);
        (writes ? totals.store_bytes : totals.load_bytes) += bytes;
    }
    if (moved) engine_access(at, bytes);
    else add(c, at, bytes, shared, pc);
}

void copy_engine(Context& c, bool moves) {
    engine = {moves, c.rank, 0};
    totals.requests += moves;
}

void atomic(Context&, const char*, unsigned, const void*) { totals.atomics++; }

void end_launch() {
    if (!config.counters) return;
    const Totals& t = totals;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"loads\": %llu, \"stores\": %llu, \"load_bytes\": %llu, \"store_bytes\": %llu, "
             "\"requests\": %llu, \"transactions\": %llu, \"least_transactions\": %llu, "
             "\"shared_loads\": %llu, \"shared_stores\": %llu, \"shared_requests\": %llu, "
             "\"shared_passes\": %llu, \"least_shared_passes\": %llu, \"atomics\": %llu, "
             "\"barriers\": %llu, \"warps\": %llu, \"active_lanes\": %.4f}",
             (unsigned long long)t.loads, (unsigned long long)t.stores,
             (unsigned long long)t.load_bytes, (unsigned long long)t.store_bytes,
             (unsigned long long)t.requests, (unsigned long long)t.transactions,
             (unsigned long long)t.least, (unsigned long long)t.shared_loads,
             (unsigned long long)t.shared_stores, (unsigned long long)t.shared_requests,
             (unsigned long long)t.shared_passes, (unsigned long long)t.shared_least,
             (unsigned long long)t.atomics, (unsigned long long)t.barriers, (unsigned long long)t.warps,
             t.lane_slots ? (double)t.lanes / (double)t.lane_slots : 1.0);
    write_counters(text);
}

}  // namespace simt::counters
