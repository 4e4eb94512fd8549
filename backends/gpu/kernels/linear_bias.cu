// A linear layer: y = x W' + bias, in the ways of row_layer.h.
#define FEW_TILES 256  // knob: 64 128 256 512
#include <portkern/row_layer.h>

extern "C" int linear_bias(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, int64_t m,
                      int64_t n, int64_t k, cudaStream_t stream) {
    return row_layer::launch({x, weight, bias, y, m, n, k}, stream);
}
