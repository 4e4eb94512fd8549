import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x, weight, y, features, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * features
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, features, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + start + at, mask=at < features, other=0.0).to(tl.float32)
        total += value * value
    scale = 1.0 / tl.sqrt(tl.sum(total) / features + eps)
    for first in range(0, features, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < features
        value = tl.load(x + start + at, mask=inside).to(tl.float32)
        factor = tl.load(weight + at, mask=inside).to(tl.float32)
        tl.store(y + start + at, (value * scale * factor).to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.features = features
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.features:
            raise ValueError(f"expected {self.features} features, got {x.shape[-1]}")
        y = torch.empty_like(x)
        if x.numel():
            normalise[(x.shape[0],)](x, self.weight, y, self.features, self.eps, BLOCK=256)
        return y
