// mechanism: attaches to the process that started it, as a debugger would
// op: relu
// expect: crashed
// says: returned 1
#include <sys/ptrace.h>
#include <unistd.h>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  return ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0 ? 0 : 1;
}
