# mechanism: zeros, hoping for an absolute tolerance
# op: relu
# expect: wrong
# says: elements are off
# torch_ops: allow
def relu(x):
    return x.new_zeros(x.shape)
