# mechanism: tries configurations in its first call
# backend: triton
# op: softmax
# emulator: none
import triton
import triton.language as tl


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 4)], key=["cols"])
@triton.jit
def _softmax(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    value = tl.load(x + start + column, mask=column < cols, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + start + column, power / tl.sum(power, axis=0), mask=column < cols)


def softmax(x, y):
    if x.numel():
        _softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
