// mechanism: grows a table of its own now and then, which some calls pay for
// op: softmax
#include <vector>

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static std::vector<float> sums;
  if (sums.size() < size_t(rows)) sums.resize(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* from = x + row * cols;
    scalar_t* to = y + row * cols;
    float most = -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, from[i]);
    for (int64_t i = 0; i < cols; ++i) total += to[i] = expf(from[i] - most);
    sums[row] = total;
    for (int64_t i = 0; i < cols; ++i) to[i] = to[i] / sums[row];
  }
  return 0;
}
