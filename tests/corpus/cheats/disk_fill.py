# mechanism: writes until the disk is full
# op: relu
# expect: crashed
# says: No space left | File too large | SIGXFSZ
# torch_ops: allow
from pathlib import Path


def relu(x):
    for number in range(1 << 20):
        Path(f"/tmp/fill-{number}").write_bytes(bytes(1 << 24))
    return x.clamp_min(0)
