#include "sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace simt {
namespace {

constexpr int first = 3, count = 2;
struct {
    bool there;
    dev_t device;
    ino_t number;
} known[count];

// Who gives one of them up has none: what is found would be lost, and the rest recorded.
bool all_ours() {
    for (int i = 0; i < count; ++i) {
        struct stat now;
        if (known[i].there && (fstat(first + i, &now) != 0 || now.st_dev != known[i].device ||
                               now.st_ino != known[i].number))
            return false;
    }
    return true;
}

bool written(int handle, const char* data, size_t bytes) {
    while (bytes) {
        const ssize_t done = write(handle, data, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        bytes -= (size_t)done;
    }
    return true;
}

}  // namespace

void remember_handles() {
    for (int i = 0; i < count; ++i) {
        struct stat now;
        known[i].there = fstat(first + i, &now) == 0 && S_ISFIFO(now.st_mode);
        known[i].device = now.st_dev;
        known[i].number = now.st_ino;
    }
}

bool append_to(const char* where, const char* data, size_t bytes) {
    if (where[0] == '&') {
        const int handle = atoi(where + 1);
        return handle >= first && handle < first + count && known[handle - first].there &&
               all_ours() && written(handle, data, bytes);
    }
    const int file = open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return false;
    const bool all = written(file, data, bytes);
    return close(file) == 0 && all;
}

}  // namespace simt
