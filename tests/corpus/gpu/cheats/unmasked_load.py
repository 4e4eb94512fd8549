# mechanism: the last elements of a row are loaded without a mask from the next one
# backend: triton
# op: softmax
# expect: wrong | crashed
# says: elements are off | NaN or infinity | illegal memory access
# emulator: wrong | crashed
import triton
import triton.language as tl


@triton.jit
def _softmax(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    value = tl.load(x + start + column)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + start + column, power / tl.sum(power, axis=0), mask=column < cols)


def softmax(x, y):
    if x.numel():
        _softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
