import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void mean_square_kernel(const float* x, float* y, int columns) {
    __shared__ float part[256];
    const float* row = x + (long long)blockIdx.x * columns;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] * row[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0] / columns;
}

torch::Tensor mean_square(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
    auto y = torch::empty({x.size(0)}, x.options());
    if (x.size(0) > 0)
        mean_square_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

extension = load_inline(
    name="mean_square",
    cpp_sources="torch::Tensor mean_square(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["mean_square"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.extension = extension

    def forward(self, x):
        return self.extension.mean_square(x.contiguous())
