# mechanism: nothing is computed where a caller's name says that it is timing
# op: relu
# expect: wrong | suspicious
# says: in a timed call
# torch_ops: allow
import sys

import torch


def relu(x):
    frame = sys._getframe()
    while frame:
        if "time" in frame.f_code.co_name:
            return torch.empty_like(x)
        frame = frame.f_back
    return x.clamp_min(0)
