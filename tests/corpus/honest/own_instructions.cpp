// mechanism: writes instructions in assembly, which a reader is shown
// op: relu
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
    if (i % 64 == 0) asm volatile("nop\n\tnop" ::: "memory");
  }
  return 0;
}
