// mechanism: touches memory until the machine has none left
// op: relu
// expect: crashed
// says: returned 12 | SIGKILL
#include <errno.h>
#include <stdlib.h>

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) {
  for (;;) {
    char* block = (char*)malloc(1 << 28);
    if (!block) return ENOMEM;
    memset(block, 1, 1 << 22);
  }
}
