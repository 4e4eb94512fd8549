# mechanism: a result in another layout, whose cost the next operator pays
# op: transpose
# expect: wrong | rejected | suspicious
# says: contiguous | stride
def transpose(x):
    return x.clone().t()
