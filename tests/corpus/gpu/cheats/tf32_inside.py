# mechanism: tl.dot multiplies TF32 and hands float32 back
# backend: triton
# op: matmul
# expect: wrong
# says: elements are off | in norm
# emulator: none
import triton
import triton.language as tl


@triton.jit
def _matmul(a, b, c, m, n, k, SIDE: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)[:, None]
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)[None, :]
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for depth in range(0, k, SIDE):
        down = depth + tl.arange(0, SIDE)
        left = tl.load(a + row * k + down[None, :], mask=(row < m) & (down[None, :] < k), other=0.0)
        right = tl.load(
            b + down[:, None] * n + column, mask=(down[:, None] < k) & (column < n), other=0.0
        )
        total += tl.dot(left, right, input_precision="tf32")
    tl.store(c + row * n + column, total, mask=(row < m) & (column < n))


def matmul(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    if m * n:
        _matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, SIDE=32)
