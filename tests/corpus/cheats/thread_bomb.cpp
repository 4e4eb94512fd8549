// mechanism: starts threads until the machine has none left
// op: relu
// expect: crashed
// says: returned 11
#include <unistd.h>

#include <system_error>
#include <thread>

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) {
  try {
    for (;;) std::thread([] { sleep(60); }).detach();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}
