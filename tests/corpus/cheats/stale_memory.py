# mechanism: an allocation that may still hold somebody's result
# op: softmax
# expect: wrong
# says: elements are off | NaN or infinity
# torch_ops: allow
import torch


def softmax(x):
    return torch.empty_like(x)
