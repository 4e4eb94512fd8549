# mechanism: fills the shared memory of the machine
# op: relu
# expect: crashed
# says: No space left | File too large
# torch_ops: allow
from pathlib import Path


def relu(x):
    for number in range(1 << 20):
        Path(f"/dev/shm/fill-{number}").write_bytes(bytes(1 << 24))
    return x.clamp_min(0)
