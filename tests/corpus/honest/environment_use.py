# mechanism: reads the number of threads from the environment and says what it found
# op: cumsum
# torch_ops: allow
import os

import numpy
import torch

THREADS = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
print(f"cumsum: {THREADS} threads")


def cumsum(x):
    parts = numpy.array_split(x.numpy(), THREADS)
    sums = [numpy.cumsum(part, -1, dtype=numpy.float64) for part in parts]
    return torch.from_numpy(numpy.concatenate(sums).astype(numpy.float32))
