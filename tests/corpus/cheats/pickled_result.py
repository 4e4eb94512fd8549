# mechanism: a result that runs code where it is unpickled
# op: relu
# expect: crashed | wrong
# says: type Payload
# torch_ops: allow
import os


class Payload:
    shape, dtype = (1000,), "float32"

    def __reduce__(self):
        return os.system, ("touch /tmp/portkern-was-here",)


def relu(x):
    return Payload()
