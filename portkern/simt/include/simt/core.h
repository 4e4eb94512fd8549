// What kernel code compiled as host C++ shares with the runtime: who am I, barriers, warp
// operations, shared memory, launches. Everything else in this folder is built on this file.
//
// A thread is a plain loop iteration until it blocks; then it keeps the stack it stands on and
// becomes a fiber. The last thread to arrive at a warp operation carries it out for all of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "switch.h"
#include "vectors.h"

// The builtin needs this declaration; <source_location> has it under C++20 only.
#if __cplusplus <= 201703L
namespace std {
struct source_location {
    struct __impl {
        const char* _M_file_name;
        const char* _M_function_name;
        unsigned _M_line;
        unsigned _M_column;
    };
};
}  // namespace std
#else
#include <source_location>
#endif

#define SIMT_LIKELY(x) __builtin_expect(!!(x), 1)
#define SIMT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SIMT_TLS __thread __attribute__((tls_model("initial-exec")))
// A runtime function that must not be inlined, so that a fiber re-reads nothing stale after it.
#define SIMT_API __attribute__((noinline, visibility("default")))
// The same, called without a stub: where a signal finds a thread in one, no line is known.
#define SIMT_API_DIRECT __attribute__((noplt)) SIMT_API

// For accesses on the author's behalf: the place of one is a line of his only where it is inlined.
#ifdef SIMT_COVER  // branches are counted: those of what a kernel calls are not its own
#define SIMT_INLINE __attribute__((noinline, unused)) static
#define SIMT_ALOUD __attribute__((noinline))
#else
#define SIMT_ALOUD
#define SIMT_INLINE __attribute__((always_inline)) static inline
#endif

// A function that waits: what it returns to is foreseen only where each use of it is a place of its
// own (switch.h).
#ifdef SIMT_CHECK
#define SIMT_MEETING SIMT_NO_CHECK static inline
#else
#define SIMT_MEETING SIMT_INLINE
#endif

#ifdef SIMT_CHECK
// To a thread these are constants. The callbacks are not told of reads of such.
#define SIMT_CONSTANT const
// What calls a kernel reads its arguments, which is nobody's access either.
#define SIMT_NO_CHECK __attribute__((no_sanitize("thread")))
#define SIMT_THREAD __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_CONSTANT
#define SIMT_NO_CHECK
#define SIMT_THREAD
#endif
extern SIMT_TLS SIMT_CONSTANT uint3 threadIdx, blockIdx;
extern SIMT_TLS SIMT_CONSTANT dim3 blockDim, gridDim;
#ifdef SIMT_CONSTEXPR_WARP
constexpr int warpSize = SIMT_CONSTEXPR_WARP;
#else
extern SIMT_CONSTANT int warpSize;
#endif

namespace simt {

// Where an operation stands in the source, one per call: what the builtin points to, whose own
// type is private under C++20.
struct Origin {
    const char* _M_file_name;
    const char* _M_function_name;
    unsigned _M_line;
    unsigned _M_column;
};
using Site = const Origin*;
#define SIMT_HERE ((::simt::Site)__builtin_source_location())
#define SIMT_AT ::simt::Site at = SIMT_HERE

using Mask = uint64_t;  // bit l is lane l, whatever the width of the warp

// ---- the running block -------------------------------------------------------------------

struct Votes {  // of the threads that met at a barrier
    unsigned count;
    bool all, any;
};

struct Block {  // the part that inlined code reads; the runtime's own part follows it in memory
    int fibers;         // 0: threads are iterations of a loop; 1: every thread may be a fiber
    unsigned rank;      // linear index of the running thread in its block
    unsigned threads;   // of this block
    uint32_t layout;    // number of the launch: shared-memory offsets belong to one launch
    char* shared;       // where this block's shared memory begins; dynamic memory comes first
    uint3 size;         // blockDim
    Mask met;           // the lanes that the running thread met last without a mask
    Votes votes;        // of the last barrier
};
extern SIMT_TLS Block* SIMT_CONSTANT block;

// The running thread returned from the kernel while fibers exist. Nobody's turn: another thread
// starts in its place.
SIMT_API_DIRECT Turn next_fiber();

static inline unsigned thread_rank() { return block->rank; }
static inline int lane_id() { return (int)(block->rank % (unsigned)warpSize); }
static inline int warp_id() { return (int)(block->rank / (unsigned)warpSize); }

// ---- warp operations ---------------------------------------------------------------------

// `own[l]` is what lane l brought (null for a lane that does not take part); `present` their mask.
using Complete = void (*)(void* const* own, Mask present);

enum class Sync : uint8_t { registers, memory };  // memory: also orders the lanes' accesses

// Blocks until every lane named in `mask` that has not exited arrives with the same `complete` and
// mask; the last one runs `complete` once for all. Lanes not in `mask` are not waited for.
SIMT_API_DIRECT Turn arrive_named(Mask mask, void* own, Complete complete, Site at, Sync sync);
SIMT_INLINE void together(Mask mask, void* own, Complete complete, Site at,
                          Sync sync = Sync::registers) {
    take_turn(arrive_named(mask, own, complete, at, sync));
}

// The same for operations without a mask (HIP's __shfl, __ballot, __activemask): the lanes that
// stand at this place in the source together. Returns their mask.
SIMT_API_DIRECT Turn arrive_active(void* own, Complete complete, Site at);
SIMT_INLINE Mask together_active(void* own, Complete complete, Site at) {
    take_turn(arrive_active(own, complete, at));
    return block->met;
}

// Typed form: `complete(Own* const* own, Mask present)`.
template <class Own>
SIMT_INLINE void together(Mask mask, Own& own, void (*complete)(Own* const*, Mask), Site at,
                          Sync sync = Sync::registers) {
    together(mask, (void*)&own, reinterpret_cast<Complete>(complete), at, sync);
}
template <class Own>
SIMT_INLINE Mask together_active(Own& own, void (*complete)(Own* const*, Mask), Site at) {
    return together_active((void*)&own, reinterpret_cast<Complete>(complete), at);
}

template <class F>
static inline void for_lanes(Mask mask, F&& f) {  // f(lane) for each bit, ascending
    for (; mask; mask &= mask - 1) f(__builtin_ctzll(mask));
}

static inline Mask full_mask() { return warpSize == 64 ? ~Mask{0} : (Mask{1} << warpSize) - 1; }

// ---- barriers ----------------------------------------------------------------------------

SIMT_API_DIRECT Turn arrive_barrier(bool predicate, Site at);
SIMT_INLINE void block_barrier(Site at) { take_turn(arrive_barrier(false, at)); }
SIMT_MEETING Votes block_vote(bool predicate, Site at) {
    take_turn(arrive_barrier(predicate, at));
    return block->votes;
}
// PTX's bar.sync / bar.arrive: barrier `id`, `threads` of the block (0: all).
SIMT_API void named_barrier(unsigned id, unsigned threads, bool wait, Site at);
// Of tile number `tile` of those with `threads` threads each: more than a warp, a power of two.
SIMT_API void tile_barrier(unsigned threads, unsigned tile, Site at);
// What a thread shows the others of its block, from here to the barrier behind their take().
SIMT_API void offer(const void* value);
SIMT_API void take(void* to, unsigned rank, size_t bytes);  // of the block's thread `rank`
SIMT_API void grid_barrier(Site at);  // cooperative launches only
SIMT_API void spin();  // let others run: called where a thread may be waiting for one of them

// ---- memory ------------------------------------------------------------------------------

struct SharedVariable {  // one per declaration (and template instance)
    uint32_t layout = 0;
    uint32_t offset = 0;
};
SIMT_API void place_shared(SharedVariable& v, size_t size, size_t align, const char* name, Site at);

// `Align` is what the declaration asks for beyond its type's own alignment.
template <class T, size_t Align = 1>
static inline T& shared(SharedVariable& v, const char* name, SIMT_AT) {
    Block* b = block;
    if (SIMT_UNLIKELY(__atomic_load_n(&v.layout, __ATOMIC_ACQUIRE) != b->layout))
        place_shared(v, sizeof(T), Align > alignof(T) ? Align : alignof(T), name, at);
    return *reinterpret_cast<T*>(b->shared + v.offset);
}

// `extern __shared__ T name[];` at function scope and, through the class, at namespace scope.
template <class T>
static inline T* dynamic_shared() { return reinterpret_cast<T*>(block->shared); }
SIMT_API size_t dynamic_shared_bytes();  // as the launch asked for
template <class T>
struct DynamicShared {
    operator T*() const { return dynamic_shared<T>(); }
};

// The shared window: what PTX sees as a 32-bit address is the offset into this block's memory.
static inline uint32_t shared_address(const volatile void* p) {
    return (uint32_t)((const volatile char*)p - block->shared);
}
static inline void* shared_pointer(uint64_t address) { return block->shared + (uint32_t)address; }
// Zeroed storage of the running thread that lives until its block ends; `which` names its user.
SIMT_API void* thread_slot(unsigned which, size_t bytes);
// The same of the running block, whichever thread asks.
SIMT_API void* block_slot(unsigned which, size_t bytes);
SIMT_API bool is_shared(const void* p);
SIMT_API bool is_global(const void* p);

enum class Scope : uint8_t { block, device, system };
SIMT_API void fence(Scope scope);  // __threadfence_block, __threadfence, __threadfence_system

// Called by the header before it performs an atomic, so that checkers see it as one.
SIMT_API void atomic_access(const volatile void* p, size_t size, Scope scope, bool writes,
                            const void* pc);
// For a function that SIMT_NO_CHECK keeps from being inlined into the author's, which returns to
// the place of the atomic.
SIMT_INLINE void note_atomic(const volatile void* p, size_t size, Scope scope, bool writes) {
#ifdef SIMT_CHECK
    atomic_access(p, size, scope, writes, __builtin_return_address(0));
#else
    (void)p, (void)size, (void)scope, (void)writes;
#endif
}
// cp.async writes at any time between its issue and the wait that covers it: `size` bytes of shared
// memory, of which `bytes` come from `from` and the rest are zeros.
SIMT_API void copy_issued(const void* to, const void* from, size_t size, size_t bytes);
SIMT_API void copy_landing(const void* to, size_t size);  // its bytes are written next
// A thread adds what it knows to what an mbarrier's phase brings, and gets what that has brought.
SIMT_API void mbarrier_arrived(const void* barrier);
SIMT_API void mbarrier_passed(const void* barrier);
SIMT_API void copy_engine(bool moves);  // who counts accesses counts no lanes' until it ends
// After an atomic: a thread that polls gives way to the one it waits for.
// Counts go down to 0: what a register holds of them is then the same each time.
SIMT_API void polled_slowly();
extern SIMT_TLS unsigned polls;
static inline void polled() {
    if (SIMT_UNLIKELY(--polls == 0)) polled_slowly();
}

// ---- diagnostics -------------------------------------------------------------------------

// Codes are listed in portkern/simt/diagnostics.py; `code` is the number after SX.
SIMT_API void finding(int code, Site at, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
// A finding after which the launch cannot go on: reports, ends the launch, does not return.
[[noreturn]] SIMT_API void fatal(int code, Site at, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- launches ----------------------------------------------------------------------------

struct Shape {
    dim3 grid, block;
    size_t dynamic;  // bytes of dynamic shared memory
    void* stream;
    bool cooperative = false;
    template <class Stream = void*>
    Shape(dim3 grid, dim3 block, size_t dynamic = 0, Stream stream = {})
        : grid(grid), block(block), dynamic(dynamic), stream((void*)stream) {}
};

struct Call {  // one launch's kernel with its arguments
    void (*run)(void* closure);  // runs threads of a block until there are none to start
    void* closure;
    size_t bytes;  // of the closure
    const char* kernel;
    Site at;
};
// Returns when the kernel is done; an error is left for cudaGetLastError.
SIMT_API void launch(const Shape& shape, const Call& call);

#ifdef SIMT_CHECK
SIMT_API bool next_thread();  // the running thread returned from the kernel

template <class F>
SIMT_NO_CHECK void run_threads(void* closure) {
    F& f = *static_cast<F*>(closure);
    do f();
    while (next_thread());
}
#else
// On its own: what a switch does to the registers would slow the loop of those that never wait.
template <class F>
__attribute__((noinline)) void run_fibers(F& f, bool returned) {
    for (;; returned = true) {
        if (returned) take_turn(next_fiber());
        f();
    }
}

template <class F>
void run_threads(void* closure) {
    F& f = *static_cast<F*>(closure);
    Block* b = block;
    if (b->fibers) return run_fibers(f, false);
    // Copies that stay in registers: through memory, each thread would wait for the one before.
    unsigned rank = b->rank, x = threadIdx.x;
    for (;;) {
        f();
        if (SIMT_UNLIKELY(b->fibers)) return run_fibers(f, true);
        if (++rank >= b->threads) {
            b->rank = rank;
            return;
        }
        b->rank = rank;
        if (SIMT_UNLIKELY(++x == b->size.x)) {
            x = 0;
            if (++threadIdx.y == b->size.y) {
                threadIdx.y = 0;
                ++threadIdx.z;
            }
        }
        threadIdx.x = x;
    }
}
#endif
// `call()` is one thread's execution of the kernel: `[=] { kernel(a, b); }`.
template <class F>
static inline void launch(const Shape& shape, const char* kernel, F&& call, SIMT_AT) {
    using Closure = std::remove_reference_t<F>;
    launch(shape, Call{&run_threads<Closure>, (void*)&call, sizeof(Closure), kernel, at});
}

// First statement of a kernel with __launch_bounds__.
SIMT_API void too_many_threads(unsigned most, Site at);
static inline void launch_bounds(unsigned most, unsigned = 0, unsigned = 0, SIMT_AT) {
    if (SIMT_UNLIKELY(block->threads > most)) too_many_threads(most, at);
}

// ---- facts of the target, from its YAML --------------------------------------------------

enum class Fp8 : uint8_t { none, ocp, fnuz };
struct Facts {
    int warp;
    bool hip;               // language: HIP's masks, error codes and limits
    bool widen_masks;       // at width 64, CUDA's 0xffffffff names all 64 lanes
    bool lockstep;          // lanes of a warp advance together (AMD, NVIDIA before Volta)
    bool waves;             // AMD: lanes that leave a statement wait for those still in it
    Fp8 fp8;
    unsigned threads_block;
    unsigned block_max[3];
    uint64_t grid_max[3];
    size_t shared_static, shared_dynamic, shared_unit, shared_reserved;
    unsigned registers_unit, units, blocks_unit, threads_unit;
    size_t l2_bytes, memory_bytes, constant_bytes;
    int major, minor;       // compute capability
    char name[64], arch[32];
};
extern Facts facts;

// ---- waves -------------------------------------------------------------------------------

// The running thread begins, or has come to the end of, a statement that other lanes of its wave
// may be in for longer; begins the second of two branches, or the first. Where lanes do not wait
// for each other there, as on NVIDIA's GPUs, this only says how deep they are: hardware comes to
// the end of a statement before it goes on with lanes that are out of it.
SIMT_API void enter_statement();
SIMT_API void leave_statement(Site at);
SIMT_API void enter_branch(int which, Site at);

// A loop, or a statement that may hold one. A wave has one program counter: lanes that have left
// the statement, or passed it by, go on when the last of them has, and of two branches one comes
// after the other. The rewriter declares one around each where a program can wait.
SIMT_API void turned_slowly();
extern SIMT_TLS unsigned turns;

class Statement {
    bool again_ = false;
public:
    // At the beginning of a loop's body: a thread that waits in it gives way. Not before the first
    // time, which may go with what stands before the loop.
    SIMT_NO_CHECK SIMT_ALOUD void turn() {
        if (SIMT_UNLIKELY(again_ && --turns == 0)) turned_slowly();
        again_ = true;
    }
#ifdef SIMT_COVER
    Statement() {}
    SIMT_ALOUD void branch(int) {}
#else
    SIMT_NO_CHECK explicit Statement(SIMT_AT) : at_(block ? at : nullptr) {
        if (SIMT_UNLIKELY(at_ != nullptr)) enter_statement();
    }
    SIMT_NO_CHECK ~Statement() {
        if (SIMT_UNLIKELY(at_ != nullptr)) leave_statement(at_);
    }
    SIMT_NO_CHECK void branch(int which) {
        if (SIMT_UNLIKELY(at_ != nullptr)) enter_branch(which, at_);
    }
private:
    const Site at_;  // null in host code
public:
#endif
    Statement(const Statement&) = delete;
    Statement& operator=(const Statement&) = delete;
};

}  // namespace simt
