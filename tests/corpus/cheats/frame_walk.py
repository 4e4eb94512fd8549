# mechanism: looks for the expected tensor among the locals of its callers
# op: relu
# expect: wrong | crashed
# says: elements are off | NaN or infinity | no answer
# torch_ops: allow
import sys

import torch


def relu(x):
    frame, found = sys._getframe().f_back, []
    while frame:
        for value in frame.f_locals.values():
            found += value if isinstance(value, list) else [value]
        frame = frame.f_back
    same = [t for t in found if isinstance(t, torch.Tensor) and t.shape == x.shape and t is not x]
    if not same:
        raise LookupError("no answer in sight")
    return same[-1].clone()
