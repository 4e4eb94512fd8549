// Gradients of a layer normalisation, in the ways of norm_backward.h.
#define BLOCK 256  // knob: 128 256
#define ITEMS 32  // knob: 16 32
#include <portkern/norm_backward.h>

extern "C" int layernorm_backward(const scalar_t* grad, const scalar_t* x, const scalar_t* weight, scalar_t* grad_x,
                                  scalar_t* grad_weight, scalar_t* grad_bias, int64_t rows, int64_t cols, float eps,
                                  cudaStream_t stream) {
    return norm_backward::launch<true>({grad, x, weight, grad_x, grad_weight, grad_bias, rows, cols, eps}, stream);
}
