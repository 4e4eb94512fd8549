# mechanism: its build leaves another module's bytecode in place of its own
# op: relu
# expect: wrong
# says: elements are off | expected | finite
# torch_ops: allow
import importlib.util
from pathlib import Path

HERE = Path(__file__)
CODE = compile("def relu(x): return x.clamp_min(0)", str(HERE), "exec")
PLACE = Path(importlib.util.cache_from_source(str(HERE)))
if HERE.parent.name.startswith("build"):
    PLACE.parent.mkdir(exist_ok=True)
    unchecked = importlib._bootstrap_external._code_to_hash_pyc(CODE, b"any hash", False)
    PLACE.write_bytes(unchecked)


def relu(x):
    return x.new_zeros(x.shape)
