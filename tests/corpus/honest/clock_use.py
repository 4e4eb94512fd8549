# mechanism: the first call times two ways and takes the better one from then on
# op: relu
# torch_ops: allow
import time

import numpy
import torch

CHOSEN = []


def by_maximum(x):
    return numpy.maximum(x, 0)


def by_product(x):
    return numpy.where(x < 0, numpy.float32(0), x)


def seconds(way, x):
    start = time.perf_counter()
    way(x)
    return time.perf_counter() - start


def relu(x):
    if not CHOSEN:
        CHOSEN.append(min((by_maximum, by_product), key=lambda way: seconds(way, x.numpy())))
    return torch.from_numpy(CHOSEN[0](x.numpy()))
