// mechanism: maps memory that can be run and writes code into it
// op: relu
// expect: rejected
// says: G407
#include <sys/mman.h>
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  static const unsigned char code[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};
  void* made = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(made, code, sizeof code);
  ((long (*)())made)();
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
  return 0;
}
