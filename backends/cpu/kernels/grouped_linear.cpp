#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

#include <portkern/linear.h>

extern "C" int grouped_linear(const scalar_t* x, const scalar_t* weight, const int32_t* ends, scalar_t* y,
                              int64_t rows, int64_t n, int64_t k, int64_t experts) {
  int64_t start = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int64_t end = ends[expert] < rows ? ends[expert] : rows;
    if (end <= start) continue;
    const product::Layer own{x + start * k, weight + expert * n * k, nullptr, y + start * n, end - start, n, k};
    if (const int wrong = product::apply_layer(own)) return wrong;
    start = end;
  }
  if (start < rows) memset(static_cast<void*>(y + start * n), 0, size_t((rows - start) * n) * sizeof(scalar_t));
  return 0;
}
