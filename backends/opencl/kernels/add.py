WG = 256  # knob: 64 128 256 512

SOURCE = r"""
kernel void add(global const storage_t* a, global const storage_t* b, global storage_t* c,
                long m, long n) {
  const long row = get_global_id(1), i = (long)get_global_id(0) * VEC;
  if (row >= m) return;
  const long at = row * n + i;
  if (VECTORS(n) && i + VEC <= n) {
    STOREV(c, at, LOADV(a, at) + LOADV(b, i));
  } else {
    for (long j = 0; j < VEC && i + j < n; ++j) STORE(c, at + j, LOAD(a, at + j) + LOAD(b, i + j));
  }
}
"""


def add(queue, program, a, b, c, *, m, n):
    if m == 0 or n == 0:
        return
    queue = program.nearby(queue, m * n)
    chunks = -(-n // program.vec)
    across = min(WG, 1 << int(chunks - 1).bit_length())
    down = WG // across
    size = (-(-chunks // across) * across, -(-m // down) * down)
    program.add(queue, size, (across, down), a, b, c, m, n)
