# mechanism: zeros, hoping for an absolute tolerance
# op: relu
# expect: wrong
# says: elements are off
def relu(x):
    return x.new_zeros(x.shape)
