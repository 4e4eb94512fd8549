# mechanism: the identity, right where all inputs are positive
# op: relu
# expect: wrong
# says: elements are off
def relu(x):
    return x.clone()
