# mechanism: relu in the memory of its input
# backend: triton
# op: relu
# expect: wrong
# says: changed its input
import triton
import triton.language as tl


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(x + start + offset, mask=mask)
    tl.store(y + start + offset, tl.where(value < 0, 0.0, value), mask=mask)


def relu(x, y):
    if x.numel():
        grid = (triton.cdiv(x.numel(), 1024),)
        _relu[grid](x, x, x.numel(), BLOCK=1024)
        _relu[grid](x, y, x.numel(), BLOCK=1024)
