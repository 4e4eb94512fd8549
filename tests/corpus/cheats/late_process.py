# mechanism: a forked child fills shared memory after the call has returned
# op: relu
# expect: wrong | suspicious
# says: elements are off | late | process
# torch_ops: allow
import mmap
import os
import time

import torch


def relu(x):
    memory = mmap.mmap(-1, max(1, x.nbytes))
    out = torch.frombuffer(memory, dtype=x.dtype).view(x.shape)
    if os.fork() == 0:
        time.sleep(0.3)
        out.numpy()[:] = x.numpy().clip(0)
        os._exit(0)
    return out
