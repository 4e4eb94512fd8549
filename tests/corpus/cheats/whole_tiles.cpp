// mechanism: only whole tiles are computed, the rest of the tested grid is left
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n / 64 * 64; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
