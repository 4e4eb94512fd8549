# mechanism: a view with other strides instead of the copy that was asked for
# op: transpose
# expect: wrong | rejected | suspicious
# says: overlap | input | contiguous | stride
# torch_ops: allow
def transpose(x):
    return x.t()
