# mechanism: another shape, for a comparison that broadcasts
# op: relu
# expect: wrong
# says: [1, 1000]
# torch_ops: allow
def relu(x):
    return x.clamp_min(0)[None]
