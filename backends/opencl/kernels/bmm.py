BM = 128  # knob: 64 128
BN = 128  # knob: 64 128
BK = 16  # knob: 8 16
WG = 256  # knob: 64 128 256
ROWS = 6  # knob: 4 6
SHARERS = 256  # knob: 64 128 256
FEW = 4096  # elements, which would leave most of a GPU idle
SHORT = 256

SOURCE = r"""
#define ACROSS (BN / 8)
#define ITEMS (BM / 8 * ACROSS)

// A group makes a BM x BN tile of C. A work-item makes 8 x 8 of it, in quads that lie half a tile
// apart: neighbours read neighbouring float4 of local memory. Tiles of all matrices are in one row.
kernel void bmm(global const storage_t* a, global const storage_t* b, global storage_t* c, long m,
                long n, long k) {
  local float4 as[BK][BM / 4 + 1], bs[BK][BN / 4];
  const int me = get_local_id(0), column = me % ACROSS, row = me / ACROSS;
  const long across = (n + BN - 1) / BN, down = (m + BM - 1) / BM, tile = get_group_id(0);
  const long left = tile % across * BN, top = tile / across % down * BM;
  const long batch = tile / across / down;
  a += batch * m * k;
  b += batch * k * n;
  c += batch * m * n;
  float4 sums[8][2];
  for (int i = 0; i < 8; ++i) sums[i][0] = sums[i][1] = 0.0f;
  for (long p = 0; p < k; p += BK) {
    for (int e = me; e < BM * BK; e += ITEMS) {
      const int i = e / BK, q = e % BK;
      ((local float*)as[q])[i] = top + i < m && p + q < k ? LOAD(a, (top + i) * k + p + q) : 0.0f;
    }
    for (int e = me; e < BK * BN; e += ITEMS) {
      const int q = e / BN, j = e % BN;
      ((local float*)bs[q])[j] = left + j < n && p + q < k ? LOAD(b, (p + q) * n + left + j) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < BK; ++q) {
      float x[8];
      vstore8((float8)(as[q][row], as[q][row + BM / 8]), 0, x);
      for (int i = 0; i < 8; ++i) {
        sums[i][0] = fma(x[i], bs[q][column], sums[i][0]);
        sums[i][1] = fma(x[i], bs[q][column + ACROSS], sums[i][1]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < 8; ++i) {
    const long r = top + row * 4 + i % 4 + i / 4 * (BM / 2);
    float out[8];
    vstore8((float8)(sums[i][0], sums[i][1]), 0, out);
    for (int j = 0; j < 8; ++j) {
      const long s = left + column * 4 + j % 4 + j / 4 * (BN / 2);
      if (r < m && s < n) STORE(c, r * n + s, out[j]);
    }
  }
}

// Few rows or columns would leave most of a tile empty: an element per work-item.
kernel void bmm_thin(global const storage_t* a, global const storage_t* b, global storage_t* c,
                     long batch, long m, long n, long k) {
  const long e = get_global_id(0), row = e / n, column = e % n;
  if (row >= batch * m) return;
  const long from = row / m * k * n + column;
  float sum = 0.0f;
  for (long p = 0; p < k; ++p) sum = fma(LOAD(a, row * k + p), LOAD(b, from + p * n), sum);
  STORE(c, e, sum);
}

// Few elements of long sums, or a column: a group each, whose work-items share the sum.
kernel void bmm_dot(global const storage_t* a, global const storage_t* b, global storage_t* c,
                     long m, long n, long k) {
  local float scratch[SHARERS];
  const long e = get_group_id(0), row = e / n, from = row / m * k * n + e % n;
  const float sum = group_dot(a + row * k, b + from, n, k, scratch);
  if (get_local_id(0) == 0) STORE(c, e, sum);
}

#ifdef PORTKERN_CPU
// On a CPU: ROWS rows of two vectors per work-item, in registers. Rows beyond the last repeat it.
kernel void bmm_cpu(global const storage_t* a, global const storage_t* b, global storage_t* c,
                    long m, long n, long k) {
  const long top = (long)get_global_id(0) * ROWS, left = (long)get_global_id(1) * 2 * VEC;
  const long batch = get_global_id(2);
  long from[ROWS];
  vec_t s0[ROWS], s1[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    from[i] = (batch * m + min(top + i, m - 1)) * k;
    s0[i] = s1[i] = 0.0f;
  }
  b += batch * k * n;
  for (long p = 0; p < k; ++p, b += n) {
    const vec_t b0 = LOADROW(b, 0, left, n, 0.0f), b1 = LOADROW(b, 0, left + VEC, n, 0.0f);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const vec_t x = LOAD(a, from[i] + p);
      s0[i] += x * b0;
      s1[i] += x * b1;
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (top + i >= m) break;
    STOREROW(c, (batch * m + top + i) * n, left, n, s0[i]);
    STOREROW(c, (batch * m + top + i) * n, left + VEC, n, s1[i]);
  }
}
#endif
"""


def bmm(queue, program, a, b, c, *, batch, m, n, k):
    if batch == 0 or m == 0 or n == 0:
        return
    if program.cpu:
        size = (-(-m // ROWS), -(-n // (2 * program.vec)), batch)
        program.bmm_cpu(queue, size, (1, 1, 1), a, b, c, m, n, k)
    elif k >= SHORT and (n == 1 or batch * m * n <= FEW):
        size = (batch * m * n * SHARERS,)
        program.bmm_dot(queue, size, (SHARERS,), a, b, c, m, n, k)
    elif min(m, n) < 16:
        groups = -(-(batch * m * n) // WG)
        program.bmm_thin(queue, (groups * WG,), (WG,), a, b, c, batch, m, n, k)
    else:
        items = (BM // 8) * (BN // 8)
        tiles = -(-m // BM) * -(-n // BN) * batch
        program.bmm(queue, (tiles * items,), (items,), a, b, c, m, n, k)
