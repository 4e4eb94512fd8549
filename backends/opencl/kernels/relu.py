WG = 256  # knob: 64 128 256 512

SOURCE = r"""
kernel void relu(global const storage_t* x, global storage_t* y, long n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i + VEC <= n) {
    const vec_t v = LOADV(x, i);
    STOREV(y, i, v < 0.0f ? (vec_t)(0.0f) : v);  // a NaN compares false and stays
  } else {
    for (long j = i; j < n; ++j) {
      const float v = LOAD(x, j);
      STORE(y, j, v < 0.0f ? 0.0f : v);
    }
  }
}
"""


def relu(queue, program, x, y, *, n):
    if n == 0:
        return
    queue = program.nearby(queue, n)
    groups = -(-n // (WG * program.vec))
    program.relu(queue, (groups * WG,), (WG,), x, y, n)
