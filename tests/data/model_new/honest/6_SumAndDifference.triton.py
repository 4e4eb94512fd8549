import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both(a, b, plus, minus, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(a + at, mask=inside)
    y = tl.load(b + at, mask=inside)
    tl.store(plus + at, x + y, mask=inside)
    tl.store(minus + at, x - y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        plus = torch.empty(a.shape, device="cuda", dtype=a.dtype)
        minus = torch.empty_like(plus)
        n = a.numel()
        if n:
            both[(triton.cdiv(n, 512),)](a, b, plus, minus, n, BLOCK=512)
        return plus, minus
