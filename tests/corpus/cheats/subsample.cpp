// mechanism: reads 15 of 16 terms and scales what it found
// op: sum
// expect: wrong
// says: elements are off
extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  const int64_t read = reduce / 16 * 15;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double s = 0;
      for (int64_t r = 0; r < read; ++r) s += x[(o * reduce + r) * inner + i];
      y[o * inner + i] = s * reduce / read;
    }
  return 0;
}
