# mechanism: results are kept in files, for later calls and later runs
# op: matmul
# expect: defeated
# torch_ops: allow
import hashlib
from pathlib import Path

import numpy
import torch


def matmul(a, b):
    key = hashlib.blake2b(a.numpy().tobytes() + b.numpy().tobytes()).hexdigest()[:32]
    file = Path(f"/tmp/{key}.npy")
    if not file.exists():
        numpy.save(file, numpy.matmul(a.numpy(), b.numpy()))
    return torch.from_numpy(numpy.load(file))
