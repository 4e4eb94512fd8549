# mechanism: one number for a whole tensor, for a comparison that broadcasts
# op: sum
# expect: wrong
# says: float32[]
# torch_ops: allow
def sum(x):
    return x.sum()
