// y = x W' of a layer whose weight has a row for each column of y, and a bias where there is one.
// Few rows of x, or of W, meet the other's where these lie; else blocks are multiplied as matrix
// products are, but for panels of W, whose rows become columns as they are packed.
#pragma once
#include <portkern/thin_product.h>

namespace product {

// Fewer rows of x than these are not worth a panel of W, of which each element would be used so often.
enum { FEW_INPUTS = 8 };

// A matrix whose rows, `stride` elements apart, are the right operand's columns.
struct Turned {
  const scalar_t* at;
  int64_t stride;

  int64_t slice(int64_t most) const { return most; }
  void prepare(int64_t, int64_t) const {}

  template <bool PAIRS, int V>
  void pack(int64_t first, int64_t depth, int64_t col, int64_t cols, float* to) const {
    for (int64_t j = col; j < col + V * LANES; j += LANES)
      turn<PAIRS, V * LANES>(at + j * stride + first, stride, least(cols - j, LANES), depth,
                             to + j - col);
  }
};

// Where results lie, to which the bias of their columns is added.
struct Biased {
  scalar_t* at;
  int64_t stride;
  const scalar_t* bias;

  void put(int64_t row, int64_t col, int64_t rows, int64_t cols, const float* sums,
           int64_t width) const {
    for (int64_t r = 0; r < rows; ++r, sums += width)
      for (int64_t j = 0; j < cols; j += LANES) {
        scalar_t* to = at + (row + r) * stride + col + j;
        const int64_t count = cols - j;
        vec v = load(sums + j);
        if (bias) v += count < LANES ? load(bias + col + j, count) : load(bias + col + j);
        if (count < LANES) store(to, v, count);
        else store(to, v);
      }
  }
};

struct Layer {
  const scalar_t *x, *weight, *bias;
  scalar_t* y;
  int64_t m, n, k;

  bool wide() const { return Product<scalar_t>{x, weight, nullptr, y, 1, m, n, k}.wide(); }
};

// `write(i, j, sum)` of `rows` rows from `row` on and N of the few.
template <int N, typename Write>
static void meet(const scalar_t* many, int64_t row, int64_t rows, int64_t all, const float* few,
                 int64_t first, int64_t k, Write write) {
  float total[DOWN * N];
  some_rows<N>(many + row * k, k, few + first * k, k, rows, (all - row) * k, total);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < N; ++j) write(row + r, first + j, total[r * N + j]);
}

// Of all rows with `count` few ones, up to four of which share what is read. Rows that a thread has at
// once stay in its cache for the next four.
template <typename Write>
static int by_few(const scalar_t* many, int64_t all, const scalar_t* few, int64_t count, int64_t k,
                  bool wide, Write write) {
  float* room = workspace<float>(count * k);
  if (!room) return 1;
  for (int64_t i = 0; i < count * k; ++i) room[i] = few[i];
  const int64_t each = least(k > 1024 ? 8 : DOWN, blocks(all, wide ? 3 * threads() : 1));
#pragma omp parallel for schedule(static) if (wide)
  for (int64_t row = 0; row < all; row += each) {
    const int64_t rows = least(each, all - row);
    for (int64_t j = 0; j < count; j += 4) switch (count - j) {
        case 1: meet<1>(many, row, rows, all, room, j, k, write); break;
        case 2: meet<2>(many, row, rows, all, room, j, k, write); break;
        case 3: meet<3>(many, row, rows, all, room, j, k, write); break;
        default: meet<4>(many, row, rows, all, room, j, k, write);
      }
  }
  free(room);
  return 0;
}

template <class Way>
static int layer_in_blocks(const Way* way, const Layer& all) {
  const Cut cut(way, 1, all.m, all.n, all.wide());
#pragma omp parallel for schedule(dynamic) if (all.wide())
  for (int64_t job = 0; job < cut.down * cut.across; ++job) {
    const int64_t i = job / cut.across * cut.rows, j = job % cut.across * cut.cols;
    const Turned right{all.weight + j * all.k, all.k};
    const Biased out{all.y + i * all.n + j, all.n, all.bias ? all.bias + j : nullptr};
    block<Way>(all.x + i * all.k, all.k, right, out, least(cut.rows, all.m - i),
               least(cut.cols, all.n - j), all.k);
  }
  return 0;
}

static int apply_layer(const Layer& all) {
  const auto [x, weight, bias, y, m, n, k] = all;
  if (m == 0 || n == 0) return 0;
  const auto put = [bias = bias, y = y, n = n](int64_t i, int64_t j, float sum) {
    y[i * n + j] = bias ? sum + float(bias[j]) : sum;
  };
  if (m <= FEW_INPUTS && m <= n)
    return by_few(weight, n, x, m, k, all.wide(),
                  [&](int64_t j, int64_t i, float sum) { put(i, j, sum); });
  if (n <= MOST_COLUMNS) return by_few(x, m, weight, n, k, all.wide(), put);
  return by_fastest([&](auto* way) { return layer_in_blocks(way, all); });
}

}  // namespace product
