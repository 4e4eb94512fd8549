// Launches: validates them, spreads blocks over OS threads, and ends what does not end by itself.
#include "launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "beside.h"
#include "context.h"
#include "host.h"
#include "memory.h"
#include "object.h"
#include "record.h"
#include "symbols.h"
#include "simt/graph.h"

namespace simt {

const char* running_kernel = "";

namespace {

int last_error;
std::atomic<uint32_t> layouts{1};

// ---- contexts: kept for the OS thread's life, as their stacks are costly to map

struct Pool {
    std::vector<Context*> free;
    ~Pool() {
        for (Context* c : free) delete_context(c);
    }
};
thread_local Pool pool;

// All blocks of a cooperative grid are begun at once: theirs are smaller where there are many.
size_t stack_bytes_of(const Shape& shape) {
    constexpr size_t least = 32 << 10;
    if (!shape.cooperative) return config.stack_bytes;
    const size_t all = std::min((size_t)4 << 30, most_stacks());
    const size_t blocks = (size_t)shape.grid.x * shape.grid.y * shape.grid.z;
    const size_t threads = blocks * shape.block.x * shape.block.y * shape.block.z;
    size_t bytes = config.stack_bytes;
    while (bytes / 2 >= least && bytes * threads > all) bytes /= 2;
    return bytes;
}

Context* take_context(const Shape& shape) {
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    const size_t stack_bytes = stack_bytes_of(shape);
    for (auto it = pool.free.rbegin(); it != pool.free.rend(); ++it) {
        Context* c = *it;
        if (c->stack_count < threads || c->stack_bytes != stack_bytes) continue;
        pool.free.erase(std::next(it).base());
        return c;
    }
    // A cooperative grid needs all its blocks at once: stacks for its threads only.
    const bool many = shape.cooperative || !pool.free.empty() ||
                      max_threads * stack_bytes > most_stacks() / 2;
    if (Context* c = new_context(many ? threads : max_threads, stack_bytes)) return c;
    for (Context* c : pool.free) delete_context(c);  // they are too small
    pool.free.clear();
    return new_context(threads, stack_bytes);
}

// ---- one OS thread's share of a launch

// How many blocks of the launch's size are resident at once on the target.
uint64_t residents(const Launch& l) {
    const dim3 b = l.shape.block;
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    uint64_t each = facts.blocks_unit ? facts.blocks_unit : 1;
    if (facts.threads_unit) each = std::min<uint64_t>(each, facts.threads_unit / threads);
    if (l.shared_used)
        each = std::min<uint64_t>(each, facts.shared_unit / (l.shared_used + facts.shared_reserved));
    return std::max<uint64_t>(facts.units, 1) * std::max<uint64_t>(each, 1);
}

double processor_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Whether blocks that wait get anywhere. Each thread that comes back to a state that it was in, and
// no other event: none will, once that has lasted for so long, and rounds enough.
struct Patience {
    static constexpr uint64_t rounds = 16;
    double since = 0;
    uint64_t turns = 0;

    void begin() { turns = 0; }
    bool is_over(size_t blocks, double seconds) {
        if (turns++ == 0) since = processor_seconds();
        return turns > rounds * blocks && processor_seconds() - since > seconds;
    }
};

struct Share {
    Launch& launch;
    std::atomic<uint64_t>& next;
    uint64_t chunk;
    std::deque<Context*> resident = {};  // begun, not finished
    uint64_t first = 0, end = 0;         // block numbers taken and not begun
    uint64_t done = 0;
    Patience patience = {};
    uint64_t computing = 0, turns = 0;  // of those resident; since the last was begun
    // Blocks are begun in order on every GPU: once those of another order wait for them, the lowest
    // come next.
    bool in_order = false;
    bool exhausted = false;  // there is no memory for more stacks
    std::vector<bool> begun = {};
    uint64_t lowest = 0;

    bool more() {
        if (first < end) return true;
        first = next.fetch_add(chunk);
        end = std::min(first + chunk, launch.blocks);
        return first < end;
    }
    uint64_t next_number() {
        if (!launch.alone) return number(first);
        if (begun.empty()) begun.resize(launch.blocks);
        while (lowest < launch.blocks && begun[lowest]) ++lowest;
        uint64_t chosen = in_order ? lowest : number(first);
        for (uint64_t n = first; begun[chosen];) chosen = number(n = (n + 1) % launch.blocks);
        begun[chosen] = true;
        ++launch.begun;
        return chosen;
    }
    uint64_t number(uint64_t n) const {
        if (config.order == Order::reverse) return launch.blocks - 1 - n;
        if (config.order <= Order::reverse) return n;
        return scattered(n);
    }
    // A permutation of the block numbers: multiplication by a number without common factors.
    uint64_t scattered(uint64_t n) const {
        uint64_t step = (config.seed * 2654435761u) % launch.blocks | 1;
        while (gcd(step, launch.blocks) != 1) step += 2;
        return (uint64_t)((unsigned __int128)n * step % launch.blocks);
    }
    static uint64_t gcd(uint64_t a, uint64_t b) {
        while (b) {
            const uint64_t r = a % b;
            a = b;
            b = r;
        }
        return a;
    }

    void finish(Context* c) {
        if (checking() && !launch.failed) check::end_block(*c);
        c->phase = Phase::idle;
        pool.free.push_back(c);
        ++done;
        __atomic_fetch_add(&launch.events, 1, __ATOMIC_RELAXED);
    }

    bool begin() {  // false where there is no memory for its stacks
        Context* c = take_context(launch.shape);
        if (!c) return false;
        begin_block(*c, launch, next_number());
        ++first;
        turns = 0;
        patience.begin();
        enter_block(*c);
        keep_or_finish(c);
        return true;
    }
    void keep_or_finish(Context* c) {
        if (c->phase == Phase::finished) return finish(c);
        computing += c->computes;
        resident.push_back(c);
    }

    // Blocks that wait for others take turns; returns whether one of them was run.
    bool turn() {
        for (size_t n = resident.size(); n > 0; --n) {
            Context* c = resident.front();
            resident.pop_front();
            if (c->phase == Phase::stalled) {
                const uint64_t before = c->progress;
                ++turns;
                computing -= c->computes;
                resume_block(*c);
                if (c->progress != before || c->phase != Phase::stalled) patience.begin();
                keep_or_finish(c);
                return true;
            }
            resident.push_back(c);
        }
        return false;
    }

    void meet() {  // all that remain wait at the grid's barrier
        if (done)
            report(309, Place(resident.front()->table[0].at), Place(),
                   "%llu of %llu blocks have returned; the others wait at the grid's barrier",
                   (unsigned long long)done, (unsigned long long)launch.blocks);
        if (checking()) check::grid_barrier();
        std::deque<Context*> all;
        all.swap(resident);
        for (Context* c : all) {
            if (launch.failed) {
                finish(c);
                continue;
            }
            computing -= c->computes;
            resume_block(*c);
            keep_or_finish(c);
        }
    }

    // All that have begun only wait. Others may end that, if the target has room for them and there
    // is memory.
    bool has_room(size_t most) {
        constexpr uint64_t most_threads = 1 << 16;
        const dim3 b = launch.shape.block;
        const uint64_t here = most_threads / ((uint64_t)b.x * b.y * b.z);
        return more() && !exhausted && (!in_order || most < std::min(residents(launch), here));
    }
    // Each that has begun needs stacks. One that computes ends without others, unless what changes
    // in it only counts how often it has looked.
    bool may_end_without_more() const {
        constexpr uint64_t looks = 8;
        return computing && turns < looks * resident.size() && !launch.shape.cooperative;
    }
    bool gets_nowhere(size_t most) {
        if (!launch.alone || resident.empty()) return false;
        return patience.is_over(resident.size(), has_room(most) ? 0.02 : 0.3);
    }
    void tell_why() {
        if (more() && launch.blocks <= residents(launch)) {  // a device would have room
            report(401, Place(launch.call.at), Place(),
                   "no memory for the stacks of all %llu blocks, which wait for each other",
                   (unsigned long long)launch.blocks);
            launch.failed = true;
            return;
        }
        Context* told = nullptr;
        unsigned in_it;
        for (Context* c : resident)
            if (c->phase == Phase::stalled && (!told || left_behind(*c, &in_it))) told = c;
        if (told) told->hopeless = true;
    }

    void run() {
        // So many blocks may be begun when those before them wait: a limit on memory.
        size_t most = launch.shape.cooperative ? ~size_t{0} : 64;
        while (!launch.failed) {
            const bool is_full = resident.size() >= most || !more();
            if (is_full && gets_nowhere(most)) {
                patience.begin();
                if (has_room(most)) {
                    most = in_order ? 2 * most : most + 1;
                    in_order = true;
                    __atomic_fetch_add(&launch.events, 1, __ATOMIC_RELAXED);
                } else {
                    tell_why();
                }
            }
            if (resident.size() < most && !may_end_without_more() && more()) {
                if (begin()) continue;
                if (!resident.empty() && !launch.shape.cooperative) {
                    most = resident.size();  // those that have stacks end first
                    exhausted = true;
                    continue;
                }
                report(401, Place(launch.call.at), Place(),
                       "no memory for the stacks of another block");
                launch.failed = true;
                break;
            }
            if (resident.empty()) break;
            if (!turn()) meet();
        }
        for (Context* c : resident) pool.free.push_back(c);  // abandoned with the launch
        resident.clear();
    }
};

// ---- the OS threads

void install_stack() {  // signals need a stack of their own when a fiber's is used up
    static thread_local char* own;
    if (own) return;
    own = static_cast<char*>(malloc(1 << 16));
    stack_t s = {};
    s.ss_sp = own;
    s.ss_size = 1 << 16;
    sigaltstack(&s, nullptr);
}

struct Team {
    std::mutex lock;
    std::condition_variable wake, idle;
    std::vector<std::thread> threads;
    Launch* launch = nullptr;
    std::atomic<uint64_t> next{0};
    uint64_t chunk = 1, round = 0;
    unsigned busy = 0;
    bool quit = false;

    ~Team() {
        {
            std::lock_guard<std::mutex> guard(lock);
            quit = true;
        }
        wake.notify_all();
        for (std::thread& t : threads) t.join();
    }
    void serve() {
        beside::own_thread();
        install_stack();
        uint64_t seen = 0;
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            wake.wait(guard, [&] { return quit || round != seen; });
            if (quit) return;
            seen = round;
            guard.unlock();
            work();
            guard.lock();
            if (--busy == 0) idle.notify_all();
        }
    }
    void work() {
        blockDim = launch->shape.block;
        gridDim = launch->shape.grid;
        Share{*launch, next, chunk}.run();
    }
    std::vector<pthread_t> enlist(unsigned helpers) {  // the ids of all that will work
        while (threads.size() < helpers) threads.emplace_back([this] { serve(); });
        std::vector<pthread_t> all{pthread_self()};
        for (std::thread& t : threads) all.push_back(t.native_handle());
        return all;
    }
    void run(Launch& l, unsigned helpers) {
        launch = &l;
        next = 0;
        chunk = helpers ? std::max<uint64_t>(1, l.blocks / ((helpers + 1) * 16)) : l.blocks;
        if (!helpers) return work();
        {
            std::lock_guard<std::mutex> guard(lock);
            ++round;
            busy = (unsigned)threads.size();
        }
        wake.notify_all();
        work();
        std::unique_lock<std::mutex> guard(lock);
        idle.wait(guard, [&] { return busy == 0; });
    }
};
Team& team() {
    static Team* t = new Team;  // never destroyed: threads may be inside at exit
    return *t;
}

// ---- the time limit

struct Watchdog {
    std::mutex lock;
    std::condition_variable changed;
    std::chrono::steady_clock::time_point deadline;
    std::chrono::steady_clock::duration limit;
    bool armed = false;
    std::atomic<bool> is_known{false};
    Launch* launch = nullptr;
    uint64_t finished = 0;  // blocks when the deadline was set
    std::vector<pthread_t> workers;

    void watch() {
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            if (!armed) {
                changed.wait(guard);
                continue;
            }
            if (changed.wait_until(guard, deadline) != std::cv_status::timeout || !armed) continue;
            if (std::chrono::steady_clock::now() < deadline) continue;
            if (progressed()) continue;
            expired();
            deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
        }
    }
    bool progressed() {  // a block has finished: it gets the time again
        const uint64_t now = __atomic_load_n(&launch->events, __ATOMIC_RELAXED);
        if (attempts || now == finished) return false;
        finished = now;
        deadline = std::chrono::steady_clock::now() + limit;
        return true;
    }
    std::atomic<unsigned> attempts{0};
    void expired() {
        if (++attempts > 10) {  // it did not give in for 2 s: end the process
            flush_findings();
            _exit(124);
        }
        for (pthread_t t : workers) pthread_kill(t, SIGUSR2);
    }
    void arm(Launch& l, double seconds, std::vector<pthread_t> threads) {
        std::lock_guard<std::mutex> guard(lock);
        launch = &l;
        workers = std::move(threads);
        attempts = 0;
        finished = 0;
        limit = std::chrono::microseconds((int64_t)(seconds * 1e6));
        deadline = std::chrono::steady_clock::now() + limit;
        if (!armed) changed.notify_all();
        armed = true;
    }
    void disarm() {
        std::lock_guard<std::mutex> guard(lock);
        armed = false;
    }
};
Watchdog& watchdog() {
    static Watchdog* dog = [] {
        Watchdog* d = new Watchdog;
        std::thread([d] {
            beside::own_thread();
            d->is_known = true;
            d->watch();
        }).detach();
        while (!d->is_known) std::this_thread::yield();
        return d;
    }();
    return *dog;
}

}  // namespace

// One further, because all other places are return addresses, which lie behind their instruction.
const void* program_counter(const void* context) {
    const ucontext_t* u = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(u->uc_mcontext.gregs[REG_RIP] + 1);
#else
    return reinterpret_cast<const void*>(u->uc_mcontext.pc + 1);
#endif
}

namespace {

struct Search {
    const void *from, *module;  // where the signal came; what the kernel is part of
    const void* found;
    bool reached;
};

_Unwind_Reason_Code visit(_Unwind_Context* frame, void* data) {
    Search& s = *static_cast<Search*>(data);
    int before = 0;
    const char* pc = reinterpret_cast<const char*>(_Unwind_GetIPInfo(frame, &before));
    pc += before;  // a statement later, or it is read before it is known
    s.reached |= pc == s.from;
    Dl_info info;
    if (!s.reached || !dladdr(pc, &info) || info.dli_fbase != s.module) return _URC_NO_REASON;
    s.found = pc;
    return _URC_END_OF_STACK;
}

// Where the kernel stands: in its own code, not in what that calls. Null between two threads.
const void* standing(const void* ucontext) {
    Search s{program_counter(ucontext), nullptr, nullptr, false};
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(context().launch->call.run), &info)) {
        s.module = info.dli_fbase;
        _Unwind_Backtrace(visit, &s);
    }
    return s.found;
}

}  // namespace

const void* place_in_kernel() {
    Search s{nullptr, nullptr, nullptr, true};
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(context().launch->call.run), &info)) {
        s.module = info.dli_fbase;
        _Unwind_Backtrace(visit, &s);
    }
    return s.found;
}

namespace {

// A switch is under way: the stack is not that of the thread that is to run.
bool between_threads(const void* ucontext) {
    const ucontext_t* u = static_cast<const ucontext_t*>(ucontext);
#if defined(__x86_64__)
    const uintptr_t at = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
#else
    const uintptr_t at = (uintptr_t)u->uc_mcontext.sp;
#endif
    const Context& c = context();
    return at - (uintptr_t)c.stacks - (size_t)c.stack * c.stack_bytes >= c.stack_bytes;
}

// Signals that may come while no thread runs before one is taken that has no line to tell.
constexpr unsigned unplaced = 5;

void on_timeout(int, siginfo_t*, void* ucontext) {
    if (!block) return;  // between blocks: the next signal, or the loop, sees it
    const void* at = between_threads(ucontext) ? nullptr : standing(ucontext);
    if (!at && watchdog().attempts < unplaced) return;
    char where[256];
    describe_waiting(context(), where, sizeof where);
    last_error = launch_timeout;
    report(405, Place(at ? at : program_counter(ucontext)), Place(), "no block has finished for %g s%s%s",
           config.limit_s, where[0] ? "; other threads: " : "", where);
    abandon();
}

bool is_stack_guard(const void* address) {
    const Region* r = region_of(address);
    if (!r || r->where != Where::stacks || !block) return false;
    const size_t offset = (size_t)((const char*)address - r->buffer.begin);
    return offset % context().stack_bytes < 4096;
}

void on_fault(int signal, siginfo_t* info, void* ucontext) {
    if ((signal == SIGSEGV || signal == SIGBUS) && admit_fault(info->si_addr, ucontext)) return;
    sigset_t timeout;  // was kept away from the lock of what is admitted
    sigemptyset(&timeout);
    sigaddset(&timeout, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &timeout, nullptr);
    if (!block) {  // not a kernel's: let it take its usual course
        ::signal(signal, SIG_DFL);
        return;
    }
    const void* own = standing(ucontext);
    const Place at(own ? own : program_counter(ucontext));
    char what[256];
    if (signal == SIGFPE) {
        last_error = launch_failure;
        report(503, at, Place(), "integer division by zero");
    } else if (signal == SIGILL) {
        last_error = launch_failure;
        report(408, at, Place(), "illegal instruction");
    } else if (is_stack_guard(info->si_addr)) {
        last_error = launch_failure;
        report(404, at, Place(), "the stack of a thread, %zu bytes, is used up",
               context().stack_bytes);
    } else {
        last_error = launch_illegal_address;
        describe_address(info->si_addr, what, sizeof what);
        const Region* r = region_near(info->si_addr);
        const int code = r ? r->where == Where::freed ? 105 : 101
                           : (uintptr_t)info->si_addr < 4096 ? 112 : 104;
        report(code, at, Place(), "%s", what);
    }
    abandon();
}

void install_signals() {
    static const bool once = [] {
        struct sigaction a = {};
        a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        a.sa_sigaction = on_fault;
        sigaddset(&a.sa_mask, SIGUSR2);
        for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &a, nullptr);
        sigemptyset(&a.sa_mask);
        a.sa_sigaction = on_timeout;
        sigaction(SIGUSR2, &a, nullptr);
        return true;
    }();
    (void)once;
    install_stack();
}

// ---- is it a launch that the target would accept?

bool fail(int error, int code, Site at, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
bool fail(int error, int code, Site at, const char* format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    report(code, Place(at), Place(), "%s", text);
    last_error = error;
    return false;
}

bool acceptable(const Shape& s, const Call& call) {
    // What CUDA 13 returns for a wrong shape; HIP, and CUDA before it, have a code of its own.
    const int wrong_shape = facts.hip ? launch_invalid_configuration : launch_invalid_value;
    const dim3 g = s.grid, b = s.block;
    const uint64_t threads = (uint64_t)b.x * b.y * b.z, blocks = (uint64_t)g.x * g.y * g.z;
    const unsigned most = std::min(facts.threads_block, max_threads);
    if (!threads || !blocks)
        return fail(wrong_shape, 401, call.at,
                    "grid (%u, %u, %u) of blocks (%u, %u, %u): a size is 0", g.x, g.y, g.z, b.x,
                    b.y, b.z);
    if (threads > most || b.x > facts.block_max[0] || b.y > facts.block_max[1] ||
        b.z > facts.block_max[2])
        return fail(wrong_shape, 401, call.at,
                    "block (%u, %u, %u) has %llu threads; %s allows %u, and (%u, %u, %u)", b.x, b.y,
                    b.z, (unsigned long long)threads, facts.arch, most, facts.block_max[0],
                    facts.block_max[1], facts.block_max[2]);
    if (g.x > facts.grid_max[0] || g.y > facts.grid_max[1] || g.z > facts.grid_max[2])
        return fail(wrong_shape, 401, call.at,
                    "grid (%u, %u, %u); %s allows (%llu, %llu, %llu)", g.x, g.y, g.z, facts.arch,
                    (unsigned long long)facts.grid_max[0], (unsigned long long)facts.grid_max[1],
                    (unsigned long long)facts.grid_max[2]);
    if (s.dynamic > facts.shared_dynamic)
        return fail(launch_invalid_value, 402, call.at,
                    "%zu bytes of dynamic shared memory; %s has %zu", s.dynamic, facts.arch,
                    facts.shared_dynamic);
    if (!facts.hip && s.dynamic > dynamic_limit(call))
        return fail(launch_invalid_value, 402, call.at,
                    "%zu bytes of dynamic shared memory without cudaFuncSetAttribute("
                    "MaxDynamicSharedMemorySize); %zu are the most", s.dynamic,
                    dynamic_limit(call));
    if (s.cooperative && facts.units && facts.threads_unit) {
        const uint64_t resident = (uint64_t)facts.units *
                                  std::max<uint64_t>(1, facts.threads_unit / threads);
        if (blocks > resident)
            return fail(launch_too_many_blocks, 401, call.at,
                        "a cooperative grid of %llu blocks; at most %llu are resident",
                        (unsigned long long)blocks, (unsigned long long)resident);
    }
    return true;
}

}  // namespace

void watch_faults() { install_signals(); }

bool is_own_handler(const struct sigaction& a) {
    return (a.sa_flags & SA_SIGINFO) && (a.sa_sigaction == on_fault || a.sa_sigaction == on_timeout);
}

int take_launch_error() {
    const int error = last_error;
    last_error = 0;
    return error;
}
int peek_launch_error() { return last_error; }
void set_launch_error(int error) { last_error = error; }

namespace {
std::mutex counting;
std::map<std::string, uint64_t> counted;
}  // namespace

void count_launch(const char* name) {
    std::lock_guard<std::mutex> guard(counting);
    ++counted[name];
}
const char* take_launches() {
    static std::string text;
    std::lock_guard<std::mutex> guard(counting);
    text.clear();
    for (const auto& [name, count] : counted) text += std::to_string(count) + " " + name + "\n";
    counted.clear();
    return text.c_str();
}

namespace {
// The launch for later, with the arguments that it has now.
api::Work kept_launch(Shape shape, Call call) {
    constexpr std::align_val_t alignment{64};
    void* bytes = ::operator new(call.bytes, alignment);
    memcpy(bytes, call.closure, call.bytes);
    const std::shared_ptr<void> closure(bytes, [](void* p) { ::operator delete(p, alignment); });
    shape.stream = nullptr;
    return [shape, call, closure] {
        Call now = call;
        now.closure = closure.get();
        launch(shape, now);
        return api::launch_result();
    };
}

void run_source(Launch& l) {
    Team& t = team();
    const unsigned helpers = l.alone || config.workers < 2 ? 0 : (unsigned)config.workers - 1;
    l.alone = helpers == 0;
    if (config.limit_s > 0) watchdog().arm(l, config.limit_s, t.enlist(helpers));
    else t.enlist(helpers);
    t.run(l, helpers);
    if (config.limit_s > 0) watchdog().disarm();
}

// The expression that names the kernel. One that names no function is a variable's, whose value is
// among the words of the closure: then it is the name of the function at that address.
const char* launched_name(const Call& call) {
    static std::set<std::string> names;
    if (defines_function((const void*)call.run, last_name(call.kernel))) return call.kernel;
    for (size_t i = 0; i + sizeof(uintptr_t) <= call.bytes; i += sizeof(uintptr_t)) {
        const void* word;
        memcpy(&word, static_cast<const char*>(call.closure) + i, sizeof word);
        const std::string name = function_at(word);
        if (!name.empty() && defines_function(word, name)) return names.insert(name).first->c_str();
    }
    return call.kernel;
}

// Whether it counts as a launch, as it does in a record.
bool run_alone(const Shape& shape, Call call) {
    call.kernel = launched_name(call);
    if (const int refused = refuse_launch(shape)) {
        last_error = refused;
        return false;
    }
    if (!acceptable(shape, call)) {
        if (record::wanted()) record::refused(shape, call);
        if (object::wanted()) object::refused(shape, call);
        return true;
    }
    install_signals();
    running_kernel = call.kernel;
    Launch l{shape, call, layouts++, (uint64_t)shape.grid.x * shape.grid.y * shape.grid.z,
             0, shape.dynamic, false};
    l.shared_top = shape.dynamic ? (shape.dynamic + 15) / 16 * 16 + red_zone : 0;
    if (record::wanted()) {
        beside::begin_launch();
        record::begin_launch(l);
    }
    close_buffers();
    take_launch_wrote();
    if (checking()) check::begin_launch(l);
    l.alone = checking() || shape.cooperative || l.blocks < 2;
    if (object::wanted()) object::run(l);
    else run_source(l);
    if (checking()) check::end_launch();
    if (l.failed && !last_error) last_error = launch_failure;
    check_canaries();
    if (record::wanted()) record::end_launch(l);
    close_buffers();
    if (const char* why = record::wanted() ? beside::end_launch() : nullptr)
        report(120, Place(call.at), Place(), "%s", why);
    if (take_launch_wrote()) count_launch(call.kernel);
    flush_findings(false);
    running_kernel = "";
    return true;
}
}  // namespace

void launch(const Shape& shape, const Call& call) {
    if (block) fatal(6, call.at, "a kernel launches a kernel");
    if (api::capturing(shape.stream)) {
        api::captured(shape.stream, api::Node::kernel, kept_launch(shape, call));
        return;
    }
    bool is_last = false;
    {
        // Threads of the host launch at the same time, of which the runtime runs one.
        static std::mutex one_launch;
        static unsigned done;
        std::lock_guard<std::mutex> guard(one_launch);
        if (run_alone(shape, call)) is_last = ++done == config.launches;
    }
    if (is_last) exit(0);
}

void too_many_threads(unsigned most, Site at) {
    last_error = launch_out_of_resources;
    fatal(403, at, "the block has %u threads, __launch_bounds__ allows %u", block->threads, most);
}

}  // namespace simt
