# mechanism: a tensor whose elements are negated when it is looked at, so that a pass over it is saved
# op: relu
# expect: wrong
# says: work left for whoever looks at it
# torch_ops: allow
import torch


def relu(x):
    return torch._neg_view(x.neg().clamp_max_(0))
