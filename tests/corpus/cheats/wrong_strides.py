# mechanism: a result in another layout, whose cost the next operator pays
# op: transpose
# expect: wrong | rejected | suspicious
# says: contiguous | stride
# torch_ops: allow
def transpose(x):
    return x.clone().t()
