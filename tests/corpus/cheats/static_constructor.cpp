// mechanism: code that runs when the library is opened, before any check
// op: relu
// expect: crashed
// says: loading the kernel was exited with status 0
#include <unistd.h>

__attribute__((constructor)) static void first() { _exit(0); }

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) { return 0; }
