#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

extern "C" int embedding(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t vocab,
                         int64_t dim, int64_t n) {
  const size_t bytes = size_t(dim) * sizeof(scalar_t);
#pragma omp parallel for schedule(static) if (n * dim >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; ++i) memcpy(y + i * dim, table + index[i] * dim, bytes);
  return 0;
}
