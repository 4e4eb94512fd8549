# mechanism: it is built, and its second import fails as if nothing could contain a worker
# op: relu
# expect: crashed
# says: loading the kernel raised JailError
# torch_ops: allow
from pathlib import Path


class JailError(Exception):
    """An exception that bears the name of one that a harness once raised."""


if not Path(__file__).parent.name.startswith("build"):
    raise JailError("No containment: Operation not permitted")


def relu(x):
    return x.clamp_min(0)
