# mechanism: programs share a sum and add to it with atomics, to a cleared output
# backend: triton
# op: sum
import triton
import triton.language as tl


@triton.jit
def _sum(x, y, reduce, inner, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = at // inner * reduce * inner + at % inner
    value = tl.load(x + start + row * inner, mask=row < reduce, other=0.0)
    tl.atomic_add(y + at, tl.sum(value, axis=0))


def sum(x, y):
    outer, reduce, inner = x.shape
    y.zero_()
    if x.numel():
        _sum[(outer * inner, triton.cdiv(reduce, 256))](x, y, reduce, inner, BLOCK=256)
