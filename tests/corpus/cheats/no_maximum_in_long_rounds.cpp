// mechanism: takes the maximum out from the third call of a round on, where short ones do not look
// op: softmax
// expect: wrong | defeated
// says: in a timed call
#include <set>
static std::set<const scalar_t*> seen;  // the first that comes again begins a round
static const scalar_t* first;
static int64_t size, calls, place;

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  if (size != rows * cols) size = rows * cols, calls = 0, first = 0, seen.clear();
  if (!first && ++calls > 16 && !seen.insert(x).second) first = x;
  place = x == first ? 0 : place + 1;
  bool careful = !first || place < 3;
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = careful ? -INFINITY : 0;
    double sum = 0;
    for (int64_t i = 0; careful && i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / sum;
  }
  return 0;
}
