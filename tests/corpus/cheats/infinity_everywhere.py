# mechanism: infinity, for a tolerance that scales with the result
# op: softmax
# expect: wrong
# says: NaN or infinity
# torch_ops: allow
def softmax(x):
    return x.new_full(x.shape, float("inf"))
