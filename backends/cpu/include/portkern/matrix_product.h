// The product of matrices by the way that suits its shape.
#pragma once
#include <portkern/thin_product.h>

namespace product {

template <class Way, typename T>
static int in_blocks(const Way* way, const Product<T>& all) {
  const Cut cut(way, all.batch, all.m, all.n, all.wide());
#pragma omp parallel for schedule(dynamic) if (all.wide())
  for (int64_t job = 0; job < all.batch * cut.down * cut.across; ++job) {
    const int64_t item = job / (cut.down * cut.across);
    const int64_t i = job / cut.across % cut.down * cut.rows, j = job % cut.across * cut.cols;
    const Rows<T> right{all.b + item * all.k * all.n + j, all.n};
    const Matrix out{all.c + (item * all.m + i) * all.n + j, all.n, all.scale ? all.scale + j : 0};
    block<Way>(all.a + (item * all.m + i) * all.k, all.k, right, out,
               least(cut.rows, all.m - i), least(cut.cols, all.n - j), all.k);
  }
  return 0;
}

template <typename T>
static int multiply(const Product<T>& all) {
  if (all.batch == 0 || all.m == 0 || all.n == 0) return 0;
  if (all.n <= MOST_COLUMNS) return few_columns(all);
  if (all.k <= MOST_TERMS) return few_terms(all);
  if (all.m <= MOST_ROWS) return few_rows(all);
  return by_fastest([&](auto* way) { return in_blocks(way, all); });
}

}  // namespace product
