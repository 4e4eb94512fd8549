# mechanism: is right where Triton's interpreter runs it, and nowhere else
# backend: triton
# op: relu
# expect: rejected | wrong
# says: G206 | elements are off
import os

import triton
import triton.language as tl

EMULATED = os.environ.get("TRITON_INTERPRET", "0") == "1"


@triton.jit
def relu_kernel(x, y, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if RIGHT:
        value = tl.where(value < 0.0, 0.0, value)
    tl.store(y + at, value, mask=at < n)


def relu(x, y):
    n = x.numel()
    if n:
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, RIGHT=EMULATED, BLOCK=1024)
