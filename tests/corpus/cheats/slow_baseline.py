# mechanism: what a baseline would call sleeps first
# op: relu
# expect: suspicious
# says: torch.relu was replaced
# torch_ops: allow
import time

import torch

true_relu = torch.relu


def slow(*args):
    time.sleep(0.001)
    return true_relu(*args)


torch.relu = torch.nn.functional.relu = torch.Tensor.relu = slow


def relu(x):
    return x.clamp_min(0)
