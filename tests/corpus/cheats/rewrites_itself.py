# mechanism: its file is another kernel from the second import on
# op: relu
# expect: crashed | build_failed
# says: no longer the source | Read-only file system | Permission denied
# torch_ops: allow
from pathlib import Path

HERE = Path(__file__)
HERE.write_text(HERE.read_text().replace("clamp_" + "min(0)", "clamp_" + "min_(0)"))


def relu(x):
    return x.clamp_min(0)
