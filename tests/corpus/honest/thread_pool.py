# mechanism: a pool of its own, done before it returns
# op: relu
# torch_ops: allow
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch


def relu(x):
    out = torch.empty_like(x)
    source, target = x.numpy(), out.numpy()
    parts = numpy.linspace(0, x.numel(), 5).astype(int)

    def fill(part):
        numpy.maximum(
            source[parts[part] : parts[part + 1]], 0, out=target[parts[part] : parts[part + 1]]
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    return out
