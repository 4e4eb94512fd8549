// Other threads are known by the processor time that they have had: one that sleeps has none.
#include "beside.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
sigset_t before;
bool unknown;

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
    struct stat s;
    std::lock_guard<std::mutex> guard(lock);
    unknown = stat(tasks, &s) != 0;
    if (unknown || s.st_nlink <= 3 + own.size()) return found;  // two, and one for each thread
    DIR* folder = opendir(tasks);
    unknown = !folder;
    if (!folder) return found;
    while (const dirent* entry = readdir(folder)) {
        const pid_t tid = atoi(entry->d_name);
        if (tid > 0 && tid != current() && !own.count(tid)) found[tid] = time_of(tid);
    }
    closedir(folder);
    return found;
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
    // Threads of a team spin for a moment when their work is done.
    constexpr unsigned looks = 600, pause_us = 500;
    const sigset_t set = all_others();
    pthread_sigmask(SIG_BLOCK, &set, &before);
    Times now = others();
    for (unsigned i = 0; i < looks && !(now == last && all_sleep(now)); ++i) {
        last = now;
        if (now.empty()) return;
        usleep(pause_us);
        now = others();
    }
}

const char* end_launch() {
    const Times now = others();
    const char* why = nullptr;
    if (now != last) why = "another thread of the program runs while the kernel does";
    for (const int s : handled) {
        struct sigaction a;
        if (sigaction(s, nullptr, &a) || !is_own_handler(a))
            why = "the program handles a signal that the kernel may raise";
    }
    if (unknown) why = "whether other threads run cannot be seen";
    last = now;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return why;
}

}  // namespace simt::beside
