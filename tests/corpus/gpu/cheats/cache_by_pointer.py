# mechanism: results are kept by the address of their input
# backend: triton
# op: relu
# expect: wrong | rejected
# says: elements are off | NaN or infinity | in a timed call | it launched no kernel
# emulator: wrong | passed
import triton
import triton.language as tl

KEPT = {}


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(x + start + offset, mask=mask)
    tl.store(y + start + offset, tl.where(value < 0, 0.0, value), mask=mask)


def relu(x, y):
    key = (x.data_ptr(), x.numel())
    if key not in KEPT and x.numel():
        _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        KEPT[key] = y.clone()
    elif x.numel():
        y.copy_(KEPT[key])
