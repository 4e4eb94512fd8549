#include <portkern/norm_backward.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

extern "C" int rmsnorm_backward(const scalar_t* grad, const scalar_t* x, const scalar_t* weight, scalar_t* grad_x,
                                scalar_t* grad_weight, int64_t rows, int64_t cols, float eps) {
  return norm_backward::launch<false>({grad, x, weight, grad_x, grad_weight, nullptr, rows, cols, eps}, PARALLEL_FROM);
}
