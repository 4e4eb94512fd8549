# mechanism: its first call raises portkern's own error of a toolchain that is not there
# op: relu
# expect: crashed
# says: the kernel raised BackendUnavailable
# torch_ops: allow
from portkern.errors import BackendUnavailable


def relu(x):
    raise BackendUnavailable("no device on this machine")
