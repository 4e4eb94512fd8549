# mechanism: float16 arithmetic inside, float32 outside
# op: matmul
# expect: wrong
# says: elements are off | in norm
# torch_ops: allow
def matmul(a, b):
    return (a.half() @ b.half()).float()
