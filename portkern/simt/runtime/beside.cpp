// Other threads are known by the processor time that they have had: one that sleeps has none.
#include "beside.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "launch.h"

namespace simt::beside {
namespace {

constexpr int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGUSR2};
constexpr const char* tasks = "/proc/self/task";

std::mutex lock;
std::set<pid_t> own;
using Times = std::map<pid_t, int64_t>;
Times last;  // when a launch began, or when one ended
std::set<pid_t> restless;  // of the last launch
sigset_t before;
bool unknown;
bool had_children;  // when the launch began: one whose end nobody waits for leaves nothing behind

pid_t current() { return (pid_t)syscall(SYS_gettid); }

sigset_t all_others() {
    sigset_t set;
    sigfillset(&set);
    for (const int s : handled) sigdelset(&set, s);
    return set;
}

// The processor time of a thread of this process, by its number: see clock_getcpuclockid(3).
int64_t time_of(pid_t tid) {
    timespec t;
    const clockid_t clock = (clockid_t)((~(unsigned)tid << 3) | 6);
    return clock_gettime(clock, &t) ? -1 : t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

// Of all threads but the calling one and the runtime's.
Times others() {
    Times found;
    std::set<pid_t> left;
    std::lock_guard<std::mutex> guard(lock);
    DIR* folder = opendir(tasks);
    unknown = !folder;
    if (!folder) return found;
    while (const dirent* entry = readdir(folder)) {
        const pid_t tid = atoi(entry->d_name);
        if (own.count(tid)) left.insert(tid);
        else if (tid > 0 && tid != current()) found[tid] = time_of(tid);
    }
    closedir(folder);
    own.swap(left);  // a number is given again when its thread is gone
    return found;
}

// A process of the program's own may have its memory: a copy, or the same.
bool has_children() {
    siginfo_t found;
    return !waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT | __WALL) || errno != ECHILD;
}

// Whether none ran between two looks; one whose time cannot be read may have.
bool none_ran(const Times& then, const Times& now) {
    for (const auto& thread : now)
        if (thread.second < 0) return false;
    return then == now;
}

// One that waits for a processor has no time either, nor has one that is about to be gone.
bool all_sleep(const Times& threads) {
    for (const auto& [tid, time] : threads) {
        const std::string path = std::string(tasks) + "/" + std::to_string(tid) + "/stat";
        char text[512] = {};
        FILE* file = fopen(path.c_str(), "r");
        if (!file) return false;
        const size_t got = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        const char* name = got ? strrchr(text, ')') : nullptr;
        if (!name || strncmp(name, ") S", 3)) return false;
    }
    return true;
}

}  // namespace

void own_thread() {
    const sigset_t set = all_others();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::lock_guard<std::mutex> guard(lock);
    own.insert(current());
}

void begin_launch() {
    // Threads of a team spin for a moment when their work is done: those that were waited for in
    // vain are looked at once, until there are others.
    constexpr unsigned most_looks = 600, pause_us = 500;
    const sigset_t set = all_others();
    pthread_sigmask(SIG_BLOCK, &set, &before);
    had_children = has_children();
    Times now = others();
    bool any_new = false, rest = false;
    for (const auto& thread : now) any_new |= !restless.count(thread.first);
    for (unsigned left = any_new ? most_looks : 1; left && !rest; --left) {
        last = now;
        if (now.empty()) return;
        usleep(pause_us);
        now = others();
        rest = none_ran(last, now) && all_sleep(now);
    }
    restless.clear();
    if (!rest)
        for (const auto& thread : now) restless.insert(thread.first);
}

const char* end_launch() {
    const Times now = others();
    const char* why = nullptr;
    if (!none_ran(last, now)) why = "another thread of the program runs while the kernel does";
    for (const int s : handled) {
        struct sigaction a;
        if (sigaction(s, nullptr, &a) || !is_own_handler(a))
            why = "the program handles a signal that the kernel may raise";
    }
    if (had_children || has_children())
        why = "a process that the program started is there while the kernel runs";
    if (unknown) why = "whether other threads run cannot be seen";
    last = now;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return why;
}

}  // namespace simt::beside
