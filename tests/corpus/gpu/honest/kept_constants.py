# mechanism: the constants of a launch are kept for each shape
# backend: triton
# op: softmax
import functools

import triton
import triton.language as tl


@functools.cache
def constants(cols):
    block = triton.next_power_of_2(cols)
    return {"BLOCK": block, "num_warps": max(1, min(8, block // 256))}


@triton.jit
def _softmax(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    value = tl.load(x + start + column, mask=column < cols, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + start + column, power / tl.sum(power, axis=0), mask=column < cols)


def softmax(x, y):
    if x.numel():
        _softmax[(x.shape[0],)](x, y, x.shape[1], **constants(x.shape[1]))
