// mechanism: one chain of float32 additions: what a first kernel does, within a sum's error
// op: sum
extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      float s = 0;
      for (int64_t r = 0; r < reduce; ++r) s += x[(o * reduce + r) * inner + i];
      y[o * inner + i] = s;
    }
  return 0;
}
