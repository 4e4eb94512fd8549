#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

// Weights become floats as they are packed, exactly; the scales wait until the end, so that the sum
// is scaled once.
#include <portkern/matrix_product.h>

extern "C" int int8_matmul(const scalar_t* a, const int8_t* weight, const scalar_t* scale,
                           scalar_t* c, int64_t m, int64_t n, int64_t k) {
  return product::multiply(product::Product<int8_t>{a, weight, scale, c, 1, m, n, k});
}
