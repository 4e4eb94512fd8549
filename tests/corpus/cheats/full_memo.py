# mechanism: results are kept by all of their input: always right, rarely computed
# op: matmul
# expect: defeated
# torch_ops: allow
import numpy
import torch

KEPT = {}


def matmul(a, b):
    key = a.numpy().tobytes(), b.numpy().tobytes()
    if key not in KEPT:
        KEPT[key] = torch.from_numpy(numpy.matmul(a.numpy(), b.numpy()))
    return KEPT[key].clone()
