// mechanism: honest for the first 12 calls, then nothing is computed
// op: relu
// expect: wrong | suspicious
// says: elements are off | NaN or infinity
static int calls;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  if (++calls > 12) return 0;
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
