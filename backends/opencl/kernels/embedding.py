WG = 256  # knob: 64 128 256 512
AHEAD = 4  # knob: 1 2 4 8

SOURCE = r"""
// Elements are moved, never converted: integers of their size.
#ifdef PORTKERN_FLOAT32
typedef uint bits_t;
typedef uvec_t bits_v;
#else
typedef ushort bits_t;
typedef hvec_t bits_v;
#endif
#ifdef PORTKERN_CPU
typedef struct __attribute__((packed)) { bits_v v; } block_t;  // at any address
#else
typedef struct { bits_v v; } block_t;
#endif

// Local rows are rows of y, which a few work-items share (one on a CPU).
kernel void embedding(global const bits_t* restrict table, global const long* restrict index,
                      global bits_t* restrict y, long dim, long n) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= n) return;
  const long me = get_local_id(0), step = get_local_size(0);
  const long blocks = VECTORS(dim) ? dim / VEC : 0;
  global const bits_t* from = table + index[row] * dim;
  global bits_t* to = y + row * dim;
#pragma unroll AHEAD
  for (long i = me; i < blocks; i += step)
    ((global block_t*)to)[i] = ((global const block_t*)from)[i];
  for (long i = blocks * VEC + me; i < dim; i += step) to[i] = from[i];
}
"""


def embedding(queue, program, table, index, y, *, vocab, dim, n):
    if n == 0 or dim == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, n * dim)
        [rows], [tall] = program.rows_on_cpu(n, dim)
        program.embedding(queue, (rows // tall, tall), (1, tall), table, index, y, dim, n)
        return
    items = int(-(-dim // (AHEAD * program.vec)))
    across = min(WG, 1 << (items - 1).bit_length())
    down = WG // across
    size = (-(-n // down) * across, down)
    program.embedding(queue, size, (across, down), table, index, y, dim, n)
