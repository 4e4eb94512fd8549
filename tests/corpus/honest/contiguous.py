# mechanism: .contiguous() on inputs and result, wherever it may be needed
# op: transpose
def transpose(x):
    return x.contiguous().t().contiguous()
