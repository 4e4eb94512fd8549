// What a product of matrices is: c = a * b for each of a batch, its columns scaled where there is a
// scale.
#pragma once
#include <portkern/product.h>

namespace product {

// Where the result lies; sums become scalar_t here, and are rounded once.
struct Matrix {
  scalar_t* at;
  int64_t stride;
  const scalar_t* scale;

  PORTKERN_METHOD void one(scalar_t* to, const float* from, int64_t col, int64_t count) const {
    vec v = load(from);
    if (scale) v *= count < LANES ? load(scale + col, count) : load(scale + col);
    if (count < LANES) store(to, v, count);
    else store(to, v);
  }

  // Past the caches where `large`.
  PORTKERN_METHOD void whole(scalar_t* to, vec v, int64_t col, bool large) const {
    stream(to, scale ? v * load(scale + col) : v, large);
  }

  void put(int64_t row, int64_t col, int64_t rows, int64_t cols, const float* sums,
           int64_t width) const {
    for (int64_t r = 0; r < rows; ++r, sums += width)
      for (int64_t j = 0; j < cols; j += LANES)
        one(at + (row + r) * stride + col + j, sums + j, col + j, cols - j);
  }
};

template <typename T>
struct Product {
  const scalar_t* a;
  const T* b;
  const scalar_t* scale;
  scalar_t* c;
  int64_t batch, m, n, k;

  // Threads are worth waking from so many multiplications on; moving an element takes as long as
  // several.
  bool wide() const {
    return double(batch) * (double(m) * n * k + 4.0 * (m * k + k * n + m * n)) >= PARALLEL_FROM;
  }
};

}  // namespace product
