// mechanism: a detached native thread fills the output after the call has returned
// op: relu
// expect: wrong | suspicious
// says: elements are off | NaN or infinity | late
#include <unistd.h>

#include <thread>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  memset(y, 0, n * sizeof(scalar_t));
  std::thread([=] {
    usleep(300000);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  }).detach();
  return 0;
}
