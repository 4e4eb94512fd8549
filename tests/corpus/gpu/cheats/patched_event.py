# mechanism: the event that tells the time says what the kernel wants
# backend: triton
# op: relu
# workloads: ci typical
# expect: wrong | suspicious | rejected
# says: clock | reading its inputs | G203 | was replaced
# emulator: rejected | suspicious
import torch
import triton
import triton.language as tl

torch.cuda.Event.elapsed_time = lambda self, other: 0.001


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(x + start + offset, mask=mask)
    tl.store(y + start + offset, tl.where(value < 0, 0.0, value), mask=mask)


def relu(x, y):
    if x.numel():
        _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
