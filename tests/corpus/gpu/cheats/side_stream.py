# mechanism: work goes to a stream that is not joined
# backend: triton
# op: relu
# workloads: ci typical
# expect: wrong | suspicious
# says: clock | reading its inputs | in a timed call | stream
# emulator: passed
import torch
import triton
import triton.language as tl

OWN = []


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(x + start + offset, mask=mask)
    tl.store(y + start + offset, tl.where(value < 0, 0.0, value), mask=mask)


def relu(x, y):
    if not OWN and torch.cuda.is_available():
        OWN.append(torch.cuda.Stream(x.device))
    with torch.cuda.stream(OWN[0] if OWN else None):
        if x.numel():
            _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
