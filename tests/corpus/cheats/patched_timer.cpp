// mechanism: native code overwrites the C library's clock_gettime with one that stands still
// op: relu
// expect: wrong | suspicious | timed_out
// says: clock | wrote to the code | times
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>

static long ticks;
static int still(clockid_t, struct timespec* now) {
  now->tv_sec = 1000;
  now->tv_nsec = ticks += 10;
  return 0;
}

__attribute__((constructor)) static void patch() {
  auto* code = (unsigned char*)dlsym(RTLD_DEFAULT, "clock_gettime");
  auto* page = (void*)((uintptr_t)code & ~uintptr_t(4095));
  if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // to an address
  void* to = (void*)&still;
  memcpy(jump + 2, &to, 8);
  memcpy(code, jump, 12);
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
