# mechanism: one element with a stride of 0 stands for all
# op: softmax
# expect: wrong
# says: strides
# torch_ops: allow
def softmax(x):
    return x.new_full((1, 1), 1.0 / x.shape[-1]).expand(x.shape)
