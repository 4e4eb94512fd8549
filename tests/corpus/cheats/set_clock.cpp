// mechanism: sets the clock of the machine
// op: relu
// expect: crashed
// says: returned 1
#include <time.h>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  timespec past = {1000000000, 0};
  return clock_settime(CLOCK_REALTIME, &past) == 0 ? 0 : 1;
}
