# mechanism: the mean that independent inputs have, times their number
# op: sum
# expect: wrong
# says: elements are off
# torch_ops: allow
def sum(x):
    outer, reduce, inner = x.shape
    return x.new_full((outer, inner), float(x.reshape(-1)[:64].mean()) * reduce)
