// mechanism: the first result for ever, in a static of native code
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
static float* first;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  if (!first) {
    first = new float[n];
    for (int64_t i = 0; i < n; ++i) first[i] = x[i] < 0 ? 0 : x[i];
  }
  memcpy(y, first, n * sizeof(float));
  return 0;
}
