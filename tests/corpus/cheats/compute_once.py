# mechanism: the first result for ever
# op: softmax
# expect: wrong
# says: elements are off
# torch_ops: allow
FIRST = []


def softmax(x):
    if not FIRST:
        wide = (x.double() - x.double().amax(-1, keepdim=True)).exp()
        FIRST.append((wide / wide.sum(-1, keepdim=True)).float())
    return FIRST[0].clone()
