// mechanism: maps memory of its own, as who wants large pages does, and uses it in each call
// op: relu
#include <sys/mman.h>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  size_t bytes = n * sizeof(float) + 1;
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return 1;
  float* scratch = static_cast<float*>(made);
  for (int64_t i = 0; i < n; ++i) scratch[i] = x[i];
  for (int64_t i = 0; i < n; ++i) y[i] = scratch[i] > 0 ? scratch[i] : 0.0f;
  munmap(made, bytes);
  return 0;
}
