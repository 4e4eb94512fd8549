# mechanism: sleeps in native code while it holds the interpreter's lock
# op: relu
# run_s: 1
# expect: timed_out
# says: longer than 1 s
# torch_ops: allow
import ctypes


def relu(x):
    ctypes.PyDLL(None).sleep(3600)
