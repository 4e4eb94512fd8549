# mechanism: results are kept by the input's id and version counter
# op: softmax
# expect: wrong | suspicious
# says: timed | repeat | fresh
# torch_ops: allow
import numpy
import torch

KEPT = {}


def softmax(x):
    key = id(x), x._version
    if key not in KEPT:
        wide = numpy.exp(x.double().numpy() - x.double().numpy().max(-1, keepdims=True))
        KEPT[key] = x, torch.from_numpy(wide / wide.sum(-1, keepdims=True)).float()
    return KEPT[key][1].clone()
