// mechanism: after as many calls as are usually looked at it writes nothing, however large the output
// op: relu
// expect: wrong
// says: in a timed call
// workloads: typical
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  static int calls;
  if (++calls > 14) return 0;
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
