# mechanism: a plain tensor whose own detach() does the work, after the clock has stopped
# op: relu
# expect: wrong
# says: attributes of its own
# torch_ops: allow
def relu(x):
    out = x.new_empty(x.shape)
    out.detach = lambda: x.clamp_min(0)
    return out
