# mechanism: an argument that is 1 is a constant to the compiler, and a tensor to the interpreter
# backend: triton
# op: relu
# expect: wrong
# says: elements are off
# emulator: wrong
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, one, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if isinstance(one, tl.tensor):
        value = tl.where(value < 0.0, 0.0, value)
    tl.store(y + at, value, mask=at < n)


def relu(x, y):
    n = x.numel()
    if n:
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, 1, BLOCK=1024)
