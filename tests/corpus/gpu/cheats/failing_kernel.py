# mechanism: the kernel's failure is caught, and torch does the work
# backend: triton
# op: matmul
# expect: rejected
# says: G301 | did the work
import torch
import triton
import triton.language as tl


@triton.jit
def _matmul(a, b, c, SIDE: tl.constexpr):
    tl.static_assert(SIDE < 0, "not written yet")


def matmul(a, b, c):
    try:
        _matmul[(1,)](a, b, c, SIDE=32)
    except (triton.CompilationError, triton.runtime.errors.InterpreterError, AssertionError):
        c.copy_(torch.einsum("ik,kj->ij", a, b))
