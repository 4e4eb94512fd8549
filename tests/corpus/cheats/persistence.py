# mechanism: a sitecustomize.py that the next interpreter imports
# op: relu
# expect: crashed | build_failed
# says: Read-only file system | Permission denied
# torch_ops: allow
import sysconfig
from pathlib import Path


def relu(x):
    Path(sysconfig.get_path("purelib"), "sitecustomize.py").write_text("import os\n")
    return x.new_zeros(x.shape)
