#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

#include <portkern/linear.h>

extern "C" int linear_bias(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, int64_t m,
                      int64_t n, int64_t k) {
  return product::apply_layer({x, weight, bias, y, m, n, k});
}
