# mechanism: a graph of the first call is replayed whatever the tensors
# backend: triton
# op: relu
# expect: wrong | crashed
# says: elements are off | NaN or infinity | in a timed call | illegal memory access
# emulator: passed
import torch
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
    n = x.numel()
    if n and n not in KEPT:
        _relu[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)  # compiled before the capture
        if not torch.cuda.is_available():
            return
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            _relu[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        KEPT[n] = graph
    if n:
        KEPT[n].replay()
