# mechanism: connects to another machine
# op: relu
# expect: crashed
# says: PermissionError | Network is unreachable
# torch_ops: allow
import socket


def relu(x):
    with socket.create_connection(("192.0.2.1", 80), timeout=1):
        return x.clamp_min(0)
