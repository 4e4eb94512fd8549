# mechanism: calls the reference that ships with the framework
# op: softmax
# expect: crashed | rejected
# says: portkern.ops
# torch_ops: allow
def softmax(x):
    from portkern.ops import softmax as op

    return op.run(x)
