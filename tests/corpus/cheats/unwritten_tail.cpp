// mechanism: the last element is not written
// op: relu
// expect: wrong
// says: 1 of | NaN or infinity
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i + 1 < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
