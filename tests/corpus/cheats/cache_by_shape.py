# mechanism: results are kept by the shape of their input
# op: relu
# expect: wrong
# says: elements are off | NaN or infinity
# torch_ops: allow
KEPT = {}


def relu(x):
    if x.shape not in KEPT:
        KEPT[x.shape] = x.clamp_min(0)
    return KEPT[x.shape].clone()
