# mechanism: settings are changed for the call alone, and are as before when it returns
# op: relu
# torch_ops: allow
import numpy
import torch


def relu(x):
    with torch.no_grad(), numpy.errstate(all="ignore"):
        return torch.from_numpy(numpy.maximum(x.numpy(), 0))
