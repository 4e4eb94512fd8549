# mechanism: looks for the judge among the processes
# op: relu
# expect: crashed
# says: no judge in sight
# torch_ops: allow
import os
from pathlib import Path


def relu(x):
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) in (1, os.getpid()):
            continue
        if b"python" in (folder / "cmdline").read_bytes():
            return x.clamp_min(0)
    raise ProcessLookupError("no judge in sight")
