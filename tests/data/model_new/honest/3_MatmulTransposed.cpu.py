import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int64_t k = a.size(0), m = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    const float *x = a.data_ptr<float>(), *y = b.data_ptr<float>();
    float* z = c.data_ptr<float>();
    for (int64_t i = 0; i < m * n; ++i) z[i] = 0.0f;
    for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < m; ++i) {
            const float factor = x[p * m + i];
            for (int64_t j = 0; j < n; ++j) z[i * n + j] += factor * y[p * n + j];
        }
    return c;
}
"""

extension = load_inline(name="product", cpp_sources=[source], functions=["product"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())
