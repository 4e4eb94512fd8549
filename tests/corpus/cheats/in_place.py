# mechanism: the input is overwritten and returned
# op: relu
# expect: wrong
# says: in the memory of the input
# torch_ops: allow
def relu(x):
    return x.clamp_min_(0)
