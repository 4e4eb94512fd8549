# mechanism: the build leaves a link out of its folder among its files
# op: relu
# expect: build_failed
# says: neither a file nor a folder
# torch_ops: allow
import os
from pathlib import Path

here = Path(__file__).parent
if here.name.startswith("build"):
    os.symlink("/etc/passwd", here / "harmless")


def relu(x):
    return x.clamp_min(0)
