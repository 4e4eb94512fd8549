// mechanism: a worker thread that lives between calls and sleeps there
// op: relu
#include <condition_variable>
#include <mutex>
#include <thread>

struct Worker {
  std::mutex lock;
  std::condition_variable changed;
  const scalar_t* x = nullptr;
  scalar_t* y = nullptr;
  int64_t n = 0;
  bool busy = false;

  Worker() { std::thread(&Worker::serve, this).detach(); }

  void serve() {
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
      changed.wait(held, [this] { return busy; });
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
      busy = false;
      changed.notify_all();
    }
  }

  void run(const scalar_t* from, scalar_t* to, int64_t count) {
    std::unique_lock<std::mutex> held(lock);
    x = from, y = to, n = count, busy = true;
    changed.notify_all();
    changed.wait(held, [this] { return !busy; });
  }
};

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  static Worker* worker = new Worker;
  const int64_t half = n / 2;
  worker->run(x, y, half);
  for (int64_t i = half; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
