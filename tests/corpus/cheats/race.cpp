// mechanism: threads add to one place without synchronisation
// op: sum
// expect: wrong
// says: elements are off
#include <sched.h>

#include <thread>
#include <vector>

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  volatile float* const shared = y;
  for (int64_t i = 0; i < outer * inner; ++i) shared[i] = 0;
  std::vector<std::thread> pool;
  for (int64_t part = 0; part < 4; ++part)
    pool.emplace_back([=] {
      for (int64_t r = part; r < reduce; r += 4)
        for (int64_t i = 0; i < outer * inner; ++i) {
          const float before = shared[i];
          if (i % 16 == 0) sched_yield();
          shared[i] = before + x[(i / inner * reduce + r) * inner + i % inner];
        }
    });
  for (auto& thread : pool) thread.join();
  return 0;
}
