# mechanism: the input is overwritten and returned
# op: relu
# expect: wrong
# says: changed its input 'x'
def relu(x):
    return x.clamp_min_(0)
