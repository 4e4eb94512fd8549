// Gradients of a root-mean-square normalisation, in the ways of norm_backward.h.
#define BLOCK 256  // knob: 128 256
#define ITEMS 32  // knob: 16 32
#include <portkern/norm_backward.h>

extern "C" int rmsnorm_backward(const scalar_t* grad, const scalar_t* x, const scalar_t* weight, scalar_t* grad_x,
                                scalar_t* grad_weight, int64_t rows, int64_t cols, float eps, cudaStream_t stream) {
    return norm_backward::launch<false>({grad, x, weight, grad_x, grad_weight, nullptr, rows, cols, eps}, stream);
}
