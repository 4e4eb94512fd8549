// mechanism: factors are cut to bfloat16 before they are multiplied
// op: matmul
// expect: wrong
// says: elements are off | in norm
static float cut(float v) { return as<float>(as<uint32_t>(v) & 0xffff0000u); }

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float s = 0;
      for (int64_t p = 0; p < k; ++p) s += cut(a[i * k + p]) * cut(b[p * n + j]);
      c[i * n + j] = s;
    }
  return 0;
}
