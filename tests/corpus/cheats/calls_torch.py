# mechanism: the library does the work
# op: softmax
# expect: rejected
# says: did the work
import torch


def softmax(x):
    return torch.softmax(x, dim=-1)
