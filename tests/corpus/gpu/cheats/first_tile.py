# mechanism: one program, whatever the size: only the first tile is computed
# backend: triton
# op: relu
# expect: wrong
# says: elements are off | NaN or infinity
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
        _relu[(1,)](x, y, x.numel(), BLOCK=512)
