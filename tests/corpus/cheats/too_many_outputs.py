# mechanism: many answers, one of which may be right
# op: relu
# expect: wrong
# says: 2 outputs
# torch_ops: allow
def relu(x):
    return x.clamp_min(0), x.clamp_max(0)
