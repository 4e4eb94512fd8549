// mechanism: nothing is computed for an address that was seen twice before
// op: relu
// expect: wrong | suspicious
// says: timed | elements are off | NaN or infinity
static const void* last;
static int seen;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  seen = x == last ? seen + 1 : 0;
  last = x;
  if (seen > 1 && n > 1000) return 0;
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
