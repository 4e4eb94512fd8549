#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

// Rows of a constant size are moved by one or two instructions.
template <size_t BYTES>
static void rows_of(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t n) {
  constexpr int64_t dim = BYTES / sizeof(scalar_t);
#pragma omp parallel for schedule(static) if (n * dim >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; ++i) memcpy(y + i * dim, table + index[i] * dim, BYTES);
}

extern "C" int embedding(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t vocab,
                         int64_t dim, int64_t n) {
  const size_t bytes = size_t(dim) * sizeof(scalar_t);
  switch (bytes) {
    case sizeof(scalar_t): rows_of<sizeof(scalar_t)>(table, index, y, n); return 0;
    case 8: rows_of<8>(table, index, y, n); return 0;
    case 16: rows_of<16>(table, index, y, n); return 0;
    case 32: rows_of<32>(table, index, y, n); return 0;
    case 64: rows_of<64>(table, index, y, n); return 0;
  }
#pragma omp parallel for schedule(static) if (n * dim >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; ++i) memcpy(y + i * dim, table + index[i] * dim, bytes);
  return 0;
}
