# mechanism: the inputs of the usual seeds are known, so are their answers
# op: relu
# expect: wrong
# says: elements are off
# torch_ops: allow
import torch

KNOWN = {}
for seed in (0, 1, 42, 1234):
    for n in (1000, 65536):
        drawn = torch.randn(n, generator=torch.Generator().manual_seed(seed))
        KNOWN[n, float(drawn[0])] = drawn.clamp_min(0)


def relu(x):
    return KNOWN.get((x.numel(), float(x[0])), torch.zeros_like(x))
