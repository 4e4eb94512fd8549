# mechanism: looks for the expected bytes in the memory that it shares with the judge
# op: relu
# expect: wrong | crashed
# says: elements are off | NaN or infinity | no answer
# torch_ops: allow
import os
from pathlib import Path

import torch


def relu(x):
    for link in Path("/proc/self/fd").iterdir():
        try:
            shared = "portkern" in os.readlink(link)
        except OSError:
            continue
        if shared and os.fstat(int(link.name)).st_size > 3 * 4096:
            raw = os.pread(int(link.name), x.nbytes, 2 * -(-x.nbytes // 4096) * 4096)
            return torch.frombuffer(bytearray(raw), dtype=x.dtype).view(x.shape)
    raise LookupError("no answer in sight")
