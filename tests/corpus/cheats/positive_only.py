# mechanism: the identity, right where all inputs are positive
# op: relu
# expect: wrong
# says: elements are off
# torch_ops: allow
def relu(x):
    return x.clone()
