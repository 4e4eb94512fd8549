// mechanism: nothing is computed for an address that was seen twice before
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity | in a timed call
#include <map>

static std::map<const void*, int> seen;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  if (++seen[x] > 2 && n > 1000) return 0;
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
