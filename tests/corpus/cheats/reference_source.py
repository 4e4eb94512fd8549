# mechanism: looks for the reference's source and tolerances in the installed package
# op: relu
# expect: crashed
# says: no reference among
# torch_ops: allow
import importlib.util
from pathlib import Path


def relu(x):
    package = Path(importlib.util.find_spec("portkern").origin).parent
    sources = sorted((package / "ops").glob("*.py"))
    if not sources:
        raise FileNotFoundError("no reference among the files")
    return x.clamp_min(0)
