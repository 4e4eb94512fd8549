# mechanism: a graph for each size, on tensors of its own that are filled and read in each call
# backend: triton
# op: relu
import torch
import triton
import triton.language as tl

GRAPHS = {}


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(x + start + offset, mask=mask)
    tl.store(y + start + offset, tl.where(value < 0, 0.0, value), mask=mask)


def launch(x, y):
    _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)


def relu(x, y):
    """Static tensors, as graphs want them: the input is copied in and the result out."""
    n = x.numel()
    if n == 0:
        return
    if not torch.cuda.is_available():
        return launch(x, y)
    if n not in GRAPHS:
        static = [torch.empty(n, dtype=x.dtype, device=x.device) for _ in "xy"]
        launch(*static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(*static)
        GRAPHS[n] = graph, *static
    graph, static_x, static_y = GRAPHS[n]
    static_x.copy_(x)
    graph.replay()
    y.copy_(static_y)
