import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["CXX"] = "hipcc"

source = """
#include <torch/extension.h>
#include <hip/hip_runtime.h>

#include <vector>

__global__ void both(const float* a, const float* b, float* plus, float* minus, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        plus[i] = a[i] + b[i];
        minus[i] = a[i] - b[i];
    }
}

std::vector<torch::Tensor> sum_and_difference(torch::Tensor a, torch::Tensor b) {
    auto plus = torch::empty_like(a), minus = torch::empty_like(a);
    const int n = a.numel();
    if (n > 0)
        hipLaunchKernelGGL(both, dim3((n + 255) / 256), dim3(256), 0, 0, a.data_ptr<float>(),
                           b.data_ptr<float>(), plus.data_ptr<float>(), minus.data_ptr<float>(), n);
    return {plus, minus};
}
"""

pair = load_inline(
    name="pair",
    cpp_sources="std::vector<torch::Tensor> sum_and_difference(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["sum_and_difference"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return pair.sum_and_difference(a, b)
