import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_tanh(x, y, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside).to(tl.float32) * scale
    power = tl.exp(-2.0 * tl.abs(value))
    size = (1.0 - power) / (1.0 + power)
    # Near zero the difference above loses digits.
    square = value * value
    series = tl.abs(value) * (
        1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * 17.0 / 315.0))
    )
    size = tl.where(tl.abs(value) < 0.08, series, size)
    result = tl.where(value < 0, -size, size) * 1.5
    tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        assert x.is_cuda
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            scaled_tanh[(triton.cdiv(n, 1024),)](x, y, n, self.scale, BLOCK=1024)
        return y
