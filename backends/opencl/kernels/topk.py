WG = 256  # knob: 64 128 256
ROOM = 512  # knob: 512 1024
AHEAD = 4  # knob: 2 4 8

SOURCE = r"""
// As unsigned numbers floats keep their order: zeros of both signs are equal, a NaN is the largest.
inline uint ordered(float v) {
  const uint u = as_uint(v), sign = 0x80000000u;
  if (v != v) return 0xfffffffeu;
  return u << 1 == 0 ? sign : u & sign ? ~u : u | sign;
}

// The larger value, and of equal ones the lower index, has the larger key: no two are equal.
inline ulong key_of(float v, long i) { return (ulong)ordered(v) << 32 | ~(uint)i; }

// The keys of VEC elements; 0, less than any, beyond the row's end.
inline void read(global const storage_t* x, long start, long i, long cols, ulong* keys) {
  float v[VEC];
  PORTKERN_JOIN(vstore, VEC)(LOADROW(x, start, i, cols, 0.0f), 0, v);
  for (int j = 0; j < VEC; ++j) keys[j] = i + j < cols ? key_of(v[j], i + j) : 0;
}

// One group per row. Each work-item finds the largest key of its share; the k-th largest of these
// is a bound that at least k keys reach, and of random ones hardly more. They are listed, and each
// goes to the place that is the number of larger ones. If the list is too short, it takes fewer,
// and another round goes on below the bound.
kernel void topk(global const storage_t* x, global storage_t* values, global long* indices,
                 long cols, long k) {
  local ulong list[ROOM], bound;
  local int count;
  const int me = get_local_id(0), size = get_local_size(0);
  const long row = get_group_id(0), start = row * cols;
  ulong below = ULONG_MAX;
  for (long done = 0; done < k;) {
    ulong keys[VEC], top = 0;
    for (long i = me * VEC; i < cols; i += size * VEC) {
      read(x, start, i, cols, keys);
      for (int j = 0; j < VEC; ++j) top = keys[j] < below ? max(top, keys[j]) : top;
    }
    list[me] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    int larger = 0;
    for (int j = 0; j < size; ++j) larger += list[j] > top;
    int found = ROOM + 1;
    for (int want = min(k - done, (long)size / 2); found > ROOM; want /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (me == 0) {
        bound = 1;
        count = 0;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (larger == want - 1 && top > 0) bound = top;
      barrier(CLK_LOCAL_MEM_FENCE);
      for (long i = me * VEC; i < cols; i += size * VEC) {
        read(x, start, i, cols, keys);
        for (int j = 0; j < VEC; ++j) {
          if (keys[j] - bound >= below - bound) continue;  // bound <= key < below otherwise
          const int slot = atomic_inc(&count);
          if (slot < ROOM) list[slot] = keys[j];
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      found = count;
    }
    for (int e = me; e < found; e += size) {
      long place = done;
      for (int j = 0; j < found; ++j) place += list[j] > list[e];
      if (place >= k) continue;
      const uint i = ~(uint)list[e];
      STORE(values, row * k + place, LOAD(x, start + i));
      indices[row * k + place] = i;
    }
    done += found;
    below = bound;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// A heap with the smallest key on top: brings the one at `at` down to where it belongs.
inline void sink(global ulong* heap, long at, long count) {
  const ulong moved = heap[at];
  for (long child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1] < heap[child]) ++child;
    if (moved < heap[child]) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

// On a CPU: one work-item per row keeps the k best keys in a heap, which lies where the indices
// will be, and passes over all vectors that hold nothing larger than its top.
kernel void topk_cpu(global const storage_t* from, global storage_t* values, global long* indices,
                     long cols, long k) {
  const long row = get_global_id(0);
  global const storage_t* x = from + row * cols;
  global ulong* heap = (global ulong*)(indices + row * k);
  for (long i = 0; i < k; ++i) heap[i] = key_of(LOAD(x, i), i);
  for (long i = k / 2 - 1; i >= 0; --i) sink(heap, i, k);
  for (long i = k; i < cols;) {
    float top = LOAD(x, ~(uint)heap[0]);
    ivec_t larger = 0;
    for (; i < cols && !any(larger); i += AHEAD * VEC)
      for (int j = 0; j < AHEAD; ++j)
        larger |= ~(LOADROW(x, 0, i + j * VEC, cols, -INFINITY) <= top);  // a NaN is, too
    if (!any(larger)) break;
    for (long at = i - AHEAD * VEC; at < min(i, cols); ++at) {
      const float v = LOAD(x, at);
      if (v <= top || key_of(v, at) < heap[0]) continue;
      heap[0] = key_of(v, at);
      sink(heap, 0, k);
      top = LOAD(x, ~(uint)heap[0]);
    }
  }
  for (long last = k - 1; last > 0; --last) {  // the smallest goes to the end of what is left
    const ulong least = heap[0];
    heap[0] = heap[last];
    heap[last] = least;
    sink(heap, 0, last);
  }
  for (long i = 0; i < k; ++i) {
    const uint at = ~(uint)heap[i];
    STORE(values, row * k + i, LOAD(x, at));
    indices[row * k + i] = at;
  }
}
"""


def topk(queue, program, x, values, indices, *, rows, cols, kept, k):
    if rows == 0 or k == 0:
        return
    if program.cpu:
        program.topk_cpu(queue, (rows,), (1,), x, values, indices, cols, k)
        return
    # Twice k work-items find a close bound; a long row has reads for more.
    items = int(max(2 * k, -(-cols // (4 * program.vec)), 64))
    wg = min(WG, 1 << (items - 1).bit_length())
    program.topk(queue, (rows * wg,), (wg,), x, values, indices, cols, k)
