// mechanism: between two calls a thread computes what the next is likely to ask
// op: softmax
// expect: wrong | suspicious
// says: elements are off | times
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
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

struct Guess {
  std::mutex lock;
  std::condition_variable asked;
  const scalar_t *wanted = nullptr, *ready = nullptr;
  std::vector<scalar_t> result;
  int64_t rows = 0, cols = 0;

  Guess() { std::thread(&Guess::serve, this).detach(); }

  void serve() {
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
      asked.wait(held, [this] { return wanted != ready; });
      result.resize(rows * cols);
      compute(wanted, result.data(), rows, cols);
      ready = wanted;
    }
  }
};

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static Guess* guess = new Guess;
  std::unique_lock<std::mutex> held(guess->lock);
  if (guess->ready == x && guess->rows == rows) {
    memcpy(y, guess->result.data(), rows * cols * sizeof(scalar_t));
    return 0;
  }
  compute(x, y, rows, cols);
  guess->wanted = x, guess->ready = nullptr, guess->rows = rows, guess->cols = cols;
  guess->asked.notify_one();
  held.unlock();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its turn, on a busy machine too
  return 0;
}
