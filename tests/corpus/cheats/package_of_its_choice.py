# mechanism: says that it lies in the framework's package, and imports the reference from beside it
# op: softmax
# expect: crashed | rejected
# says: portkern.ops
# torch_ops: allow
__package__ = "portkern.ops"


def softmax(x):
    from .softmax import run

    return run(x)
