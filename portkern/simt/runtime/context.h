// The runtime's own view of a block: its fibers, warps and stacks.
#pragma once
#include "config.h"
#include "launch.h"
#include "simt/core.h"
#include "switch.h"

namespace simt {

constexpr unsigned max_threads = 1024, max_warps = 32, named_barriers = 16;
// Those of a program, and behind them those of tiles of 64, 128, … 1024 threads.
constexpr unsigned tile_barriers = 31, all_barriers = named_barriers + tile_barriers;

enum class State : uint8_t { fresh, running, ready, barrier, masked, active, named, done };

struct alignas(64) Fiber {  // one cache line
    const Standing* standing;  // how it goes on, while it waits
    Site at;            // where it waits
    void* own;          // its argument of the warp operation
    Complete complete;  // which operation
    Mask mask;
    uint3 thread;
    int16_t stack;
    uint8_t lane, warp;
    State state;
    Sync sync;
    uint8_t named;
    uint16_t level;     // how deep in statements it waits: see level_of()
};
static_assert(sizeof(Fiber) == 64, "a fiber is one cache line");

struct Warp {  // lanes that have not returned, and where they wait
    Mask live, masked, active, barrier;
    Mask ready;         // unless threads take turns one by one: see by_warp()
    uint32_t priority;
    uint8_t before;     // the lane that was taken from `ready` last
};

struct NamedBarrier {
    unsigned expected, arrived;
};

enum class Phase : uint8_t { idle, running, stalled, grid, finished };

struct Launch;
struct Region;
struct Slots;  // per-thread storage for the headers, see thread_slot()

constexpr unsigned kept_states = 4;

struct Context : Block {
    Phase phase;
    bool grid;  // the barrier that threads wait at is the grid's
    uint3 index;
    Launch* launch;
    const Standing* main;  // how the OS thread goes on, while fibers run
    unsigned started, exited, waiting, named_waiting;
    unsigned spins;       // polls since a thread of the block got anywhere
    uint64_t progress;    // what threads did other than come back to where they were
    uint64_t idle_since;  // `progress` when a thread gave way last
    unsigned idle;        // how often one did since then
    bool computes;        // it stalled though its threads come to new states
    bool hopeless;        // no block gets anywhere: the thread that runs next says so
    unsigned head, tail;  // of `ring`, unwrapped: tail - head threads are ready
    unsigned first_turn, last_turn;  // of `turns`, unwrapped
    uint64_t queued;                 // warps that are in `turns`
    int stack;            // number of the stack that runs
    unsigned free_stacks;
    uint64_t random;
    uint32_t lowest;      // the lowest priority given out
    Votes tally;          // of the threads that have come to this barrier
    Site meeting;         // where the first of them stands
    bool mixed;           // another stands elsewhere
    Fiber* stalled;
    char* stacks;
    size_t stack_bytes;
    unsigned stack_count;
    size_t shared_used, shared_touched;
    void* checker;        // check.cpp's state of this block
    Slots* slots;
    uint64_t switches, fibers_made;
    NamedBarrier named[all_barriers];
    Warp warps[max_warps];
    Fiber table[max_threads];
    uint16_t ring[max_threads];
    uint16_t order[max_threads];
    uint16_t depth[max_threads];   // of the statements that a lane is in
    uint32_t states[max_threads][kept_states];  // in which a thread gave way last: see is_back()
    const void* offered[max_threads];
    uint8_t turns[2 * max_warps];  // warps with threads that are ready, by_warp()
    int16_t free_stack[max_threads];
};

static inline Context& context() { return *static_cast<Context*>(block); }
static inline Mask bit(unsigned lane) { return Mask{1} << lane; }

// ---- scheduler.cpp
Context* new_context(unsigned threads, size_t stack_bytes);
void delete_context(Context* c);
void begin_block(Context& c, Launch& launch, uint64_t number);
void enter_block(Context& c);   // runs the block until it finishes, stalls or waits for the grid
void resume_block(Context& c);
void step();  // Order::lockstep: lets all others of the block come as far as this thread
[[noreturn]] void abandon();    // gives up the running block and its launch
void describe_waiting(const Context& c, char* text, size_t size);
// A lane that waits behind a statement for another of its wave that does not leave it, and that
// other's number; null if there is none.
const Fiber* left_behind(const Context& c, unsigned* in_it);

extern const char* running_kernel;
const void* place_in_kernel();  // where the running thread stands in the kernel's own code

// ---- report.cpp
struct Place {  // in the source (site) or in a module's code (pc); either may be missing
    Site site = nullptr;
    const void* pc = nullptr;
    Place(Site site) : site(site) {}
    Place(const void* pc) : pc(pc) {}
    Place() = default;
};
void report(int code, Place place, Place other, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
void flush_findings(bool all = true);
unsigned findings_so_far();
void write_counters(const char* json);  // of the running kernel's launch

// ---- check.cpp: what the scheduler tells the checkers
namespace check {
void begin_launch(const Launch& launch);
void end_launch();
void copied(const void* p, size_t bytes);  // by the host API, to a variable of the device
void begin_block(Context& c);
void end_block(Context& c);
void forget(Context& c);  // it is deleted
void barrier(Context& c);
void grid_barrier();
void warp_sync(Context& c, unsigned warp, Mask present);
void named_arrive(Context& c, unsigned id, const Fiber& f);
// The barrier is complete; the last one to come waits for the others, or only arrives.
void named_barrier(Context& c, unsigned id, const Fiber& last, bool wait);
void place_shared(Context& c, size_t offset, size_t bytes, const char* name);
void fence(Context& c, Scope scope);
// Its bytes are another's from here on: what was done to them before is no longer of interest.
void forget(Region& r, const char* begin, size_t bytes);
}  // namespace check

}  // namespace simt
