# mechanism: another dtype, for a comparison that casts
# op: relu
# expect: wrong
# says: is float64
# torch_ops: allow
def relu(x):
    return x.double().clamp_min(0)
