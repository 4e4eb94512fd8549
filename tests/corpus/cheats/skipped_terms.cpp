// mechanism: terms that look small are not added
// op: sum
// expect: wrong
// says: elements are off
extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double s = 0;
      for (int64_t r = 0; r < reduce; ++r) {
        const float v = x[(o * reduce + r) * inner + i];
        if (fabsf(v) > 0.01f) s += v;
      }
      y[o * inner + i] = s;
    }
  return 0;
}
