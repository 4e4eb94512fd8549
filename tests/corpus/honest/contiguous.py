# mechanism: .contiguous() on inputs and result, wherever it may be needed
# op: transpose
# torch_ops: allow
def transpose(x):
    return x.contiguous().t().contiguous()
