#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

#include <portkern/matrix_product.h>

extern "C" int bmm(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m,
                   int64_t n, int64_t k) {
  return product::multiply(product::Product<scalar_t>{a, b, nullptr, c, batch, m, n, k});
}
