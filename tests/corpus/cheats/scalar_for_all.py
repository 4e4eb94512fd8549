# mechanism: one number for a whole tensor, for a comparison that broadcasts
# op: sum
# expect: wrong
# says: float32[]
def sum(x):
    return x.sum()
