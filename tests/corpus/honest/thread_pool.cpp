// mechanism: threads of its own, joined before it returns
// op: relu
#include <thread>
#include <vector>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  std::vector<std::thread> pool;
  for (int64_t part = 0; part < 4; ++part)
    pool.emplace_back([=] {
      for (int64_t i = n * part / 4; i < n * (part + 1) / 4; ++i) y[i] = x[i] < 0 ? 0 : x[i];
    });
  for (auto& thread : pool) thread.join();
  return 0;
}
