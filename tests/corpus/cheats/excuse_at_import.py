# mechanism: its import fails as if the machine lacked the toolchain
# op: relu
# expect: build_failed
# says: raised BackendUnavailable
# torch_ops: allow


class BackendUnavailable(Exception):
    """An exception that bears the name of one that a harness raises."""


raise BackendUnavailable("no compiler on this machine")


def relu(x):
    return x.clamp_min(0)
