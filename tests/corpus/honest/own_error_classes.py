# mechanism: it has an error class of a harness's name, for shapes that it never meets here
# op: relu
# torch_ops: allow


class BackendUnavailable(Exception):
    """No backend of this module takes the tensor."""


def relu(x):
    if not x.is_floating_point():
        raise BackendUnavailable(f"no kernel for {x.dtype}")
    return x.clamp_min(0)
