# mechanism: the library does the work
# op: softmax
# expect: rejected | suspicious
# says: torch | library
import torch


def softmax(x):
    return torch.softmax(x, dim=-1)
