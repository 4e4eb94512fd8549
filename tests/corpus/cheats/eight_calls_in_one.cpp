// mechanism: every eighth call does the work of eight, whose inputs lie ready, and the others nothing
// op: softmax
// expect: suspicious | wrong | crashed
// says: the work of others | killed by | NaN or infinity | elements are off
#include <utility>
#include <vector>

static void compute(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) total += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / total;
  }
}

static std::vector<std::pair<const scalar_t*, scalar_t*>> seen;  // in the order of a round's calls

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static int calls;
  if (++calls < 12) {
    compute(x, y, rows, cols);
    return 0;
  }
  size_t place = 0;
  while (place < seen.size() && seen[place].first != x) ++place;
  if (place == seen.size()) {
    seen.push_back({x, y});
    compute(x, y, rows, cols);
  } else if (place % 8 == 0) {
    for (size_t i = place; i < place + 8 && i < seen.size(); ++i)
      compute(seen[i].first, seen[i].second, rows, cols);
  }
  return 0;
}
