// mechanism: a thread does the work as soon as the inputs of a call lie in its buffer
// op: softmax
// expect: defeated | wrong | suspicious
// says: times
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

struct Job {
  const scalar_t* x;
  std::vector<scalar_t> copy, result;
  bool ready;
};

static std::mutex lock;
static std::vector<Job*> jobs;
static int64_t all_rows, all_cols;

static void compute(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) total += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / total;
  }
}

static void watch() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::lock_guard<std::mutex> held(lock);
    for (Job* job : jobs) {
      size_t size = job->copy.size();
      bool changed = job->x[0] != job->copy[0] || job->x[size - 1] != job->copy[size - 1];
      if (!changed) continue;
      memcpy(job->copy.data(), job->x, size * sizeof(scalar_t));
      compute(job->copy.data(), job->result.data(), all_rows, all_cols);
      job->ready = true;
    }
  }
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static std::thread* watcher = new std::thread(watch);
  (void)watcher;
  size_t size = rows * cols;
  std::lock_guard<std::mutex> held(lock);
  if (rows != all_rows || cols != all_cols) jobs.clear(), all_rows = rows, all_cols = cols;
  for (Job* job : jobs)
    if (job->x == x && job->ready && !memcmp(x, job->copy.data(), size * sizeof(scalar_t))) {
      memcpy(y, job->result.data(), size * sizeof(scalar_t));
      job->ready = false;
      return 0;
    }
  compute(x, y, rows, cols);
  bool known = false;
  for (Job* job : jobs) known = known || job->x == x;
  if (!known && size) {
    jobs.push_back(new Job{x, std::vector<scalar_t>(x, x + size), std::vector<scalar_t>(size), false});
  }
  return 0;
}
