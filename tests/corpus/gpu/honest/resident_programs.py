# mechanism: a fixed number of programs goes through all rows
# backend: triton
# op: softmax
import triton
import triton.language as tl

PROGRAMS = 16


@triton.jit
def _softmax(x, y, rows, cols, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, PROGRAMS):
        start = row * cols
        value = tl.load(x + start + column, mask=column < cols, other=-float("inf"))
        power = tl.exp(value - tl.max(value, axis=0))
        tl.store(y + start + column, power / tl.sum(power, axis=0), mask=column < cols)


def softmax(x, y):
    rows, cols = x.shape
    if x.numel():
        block = triton.next_power_of_2(cols)
        _softmax[(PROGRAMS,)](x, y, rows, cols, PROGRAMS=PROGRAMS, BLOCK=block)
