import numpy

WG = 256  # knob: 64 128 256
ROWS = 16  # knob: 8 16 32
ROOM = 512  # knob: 512 1024

SOURCE = r"""
// A group owns a block of rows of y. It lists the src rows that go there, in their order, and makes
// each element in one register: no atomic addition, and the same bits every time.
kernel void scatter_add(global const storage_t* x, global const long* index,
                        global const storage_t* src, global storage_t* y, long rows, long dim,
                        long n, int block) {
  local ulong found[ROOM], listed[ROOM];
  local int count, begin[MOST_ROWS + 1];
  const int size = get_local_size(0) * get_local_size(1);
  const int me = get_local_id(1) * get_local_size(0) + get_local_id(0);
  const long first = (long)get_group_id(0) * block;
  const int mine = min((long)block, rows - first);
  if (me == 0) count = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long i = me; i < n; i += size) {
    const long r = index[i] - first;
    if (r < 0 || r >= mine) continue;
    const int slot = atomic_inc(&count);
    if (slot < ROOM) found[slot] = (ulong)r << 32 | (uint)i;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const bool fits = count <= ROOM;
  const int all = fits ? count : 0;
  for (int e = me; e < all; e += size) {  // sorted: each goes where as many are less
    int less = 0;
    for (int j = 0; j < all; ++j) less += found[j] < found[e];
    listed[less] = found[e];
  }
  for (int r = me; r <= mine; r += size) {
    int before = 0;
    for (int j = 0; j < all; ++j) before += found[j] >> 32 < r;
    begin[r] = before;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = get_local_id(1); r < mine; r += get_local_size(1)) {
    const long start = (first + r) * dim;
    for (long c = get_local_id(0) * VEC; c < dim; c += get_local_size(0) * VEC) {
      vec_t sum = LOADROW(x, start, c, dim, 0.0f);
      for (int e = begin[r]; e < begin[r + 1]; ++e)
        sum += LOADROW(src, (uint)listed[e] * dim, c, dim, 0.0f);
      for (long i = 0; i < n && !fits; ++i)
        if (index[i] == first + r) sum += LOADROW(src, i * dim, c, dim, 0.0f);
      STOREROW(y, start, c, dim, sum);
    }
  }
}
"""
MOST_ROWS = 64


def scatter_add(queue, program, x, index, src, y, *, rows, dim, n):
    if rows == 0 or dim == 0:
        return
    # Few enough rows that the list has room for theirs; a CPU's groups are fewer and larger.
    block = min(MOST_ROWS if program.cpu else ROWS, int(ROOM * rows // (4 * n + 1)))
    block = numpy.int32(max(block, 1))
    chunks = int(-(-dim // program.vec))
    across = 1 if program.cpu else min(WG, 1 << (chunks - 1).bit_length())
    down = 1 if program.cpu else WG // across
    size = (-(-rows // block) * across, down)
    program.scatter_add(queue, size, (across, down), x, index, src, y, rows, dim, n, block)
