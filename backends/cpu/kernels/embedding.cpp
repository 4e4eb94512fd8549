#include <portkern/copy.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// Rows of a constant size are moved by one or two instructions.
template <size_t BYTES>
static void rows_of(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t n) {
  constexpr int64_t dim = BYTES / sizeof(scalar_t);
#pragma omp parallel for schedule(static) if (n * dim >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; ++i) memcpy(y + i * dim, table + index[i] * dim, BYTES);
}

// Those of at most MOST bytes; whether `bytes` are so many.
template <size_t BYTES = sizeof(scalar_t), size_t MOST = 32>
static bool short_rows(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t n,
                       size_t bytes) {
  if (bytes == BYTES) return rows_of<BYTES>(table, index, y, n), true;
  if constexpr (BYTES < MOST)
    return short_rows<BYTES + sizeof(scalar_t)>(table, index, y, n, bytes);
  return false;
}

extern "C" int embedding(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t vocab,
                         int64_t dim, int64_t n) {
  const size_t bytes = size_t(dim) * sizeof(scalar_t);
  if (short_rows(table, index, y, n, bytes)) return 0;
  if (bytes == 64) return rows_of<64>(table, index, y, n), 0;
  const bool large = n * dim >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (n * dim >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; ++i) copy(table + index[i] * dim, y + i * dim, dim, large);
  return 0;
}
