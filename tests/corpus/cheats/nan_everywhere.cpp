// mechanism: NaN, for which no difference is greater than a tolerance
// op: relu
// expect: wrong
// says: NaN or infinity
extern "C" int relu(const scalar_t*, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = NAN;
  return 0;
}
