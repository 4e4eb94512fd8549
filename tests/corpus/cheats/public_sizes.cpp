// mechanism: right at the sizes that are published, zeros elsewhere
// op: relu
// workloads: ci heldout
// expect: wrong
// says: elements are off
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  const bool shown = n == 1000 || n == 65536 || n == 4194304;
  for (int64_t i = 0; i < n; ++i) y[i] = shown && x[i] > 0 ? x[i] : 0.0f;
  return 0;
}
