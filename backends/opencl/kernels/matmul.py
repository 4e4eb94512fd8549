BM = 128  # knob: 64 128
BN = 128  # knob: 64 128
BK = 16  # knob: 8 16 32
TM = 8  # knob: 4 8
TN = 8  # knob: 4 8
SHARERS = 256  # knob: 64 128 256
FEW = 4096  # elements, which would leave most of a GPU idle
SHORT = 256

SOURCE = r"""
#define ACROSS (BN / TN)
#define ITEMS ((BM / TM) * ACROSS)

// A group makes BM x BN of C, a work-item TM x TN of it: rows and columns that lie BM / TM and
// ACROSS apart, so that neighbours read neighbouring local memory.
kernel void matmul(global const storage_t* a, global const storage_t* b, global storage_t* c,
                   long m, long n, long k) {
  local float as[BK][BM + 1], bs[BK][BN];
  const int me = get_local_id(0), column = me % ACROSS, row = me / ACROSS;
  const long left = (long)get_group_id(0) * BN, top = (long)get_group_id(1) * BM;
  float sums[TM][TN];
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; ++j) sums[i][j] = 0.0f;
  for (long p = 0; p < k; p += BK) {
    for (int e = me; e < BM * BK; e += ITEMS) {
      const int i = e / BK, q = e % BK;
      as[q][i] = top + i < m && p + q < k ? LOAD(a, (top + i) * k + p + q) : 0.0f;
    }
    for (int e = me; e < BK * BN; e += ITEMS) {
      const int q = e / BN, j = e % BN;
      bs[q][j] = left + j < n && p + q < k ? LOAD(b, (p + q) * n + left + j) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < BK; ++q) {
      float x[TM], y[TN];
      for (int i = 0; i < TM; ++i) x[i] = as[q][row + i * (BM / TM)];
      for (int j = 0; j < TN; ++j) y[j] = bs[q][column + j * ACROSS];
      for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) sums[i][j] = fma(x[i], y[j], sums[i][j]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; ++j) {
      const long r = top + row + i * (BM / TM), s = left + column + j * ACROSS;
      if (r < m && s < n) STORE(c, r * n + s, sums[i][j]);
    }
}

// Few rows or columns would leave most of a tile empty: an element per work-item.
kernel void matmul_thin(global const storage_t* a, global const storage_t* b, global storage_t* c,
                        long m, long n, long k) {
  const long e = get_global_id(0), row = e / n, column = e % n;
  if (row >= m) return;
  float sum = 0.0f;
  for (long p = 0; p < k; ++p) sum = fma(LOAD(a, row * k + p), LOAD(b, p * n + column), sum);
  STORE(c, e, sum);
}

// Few elements of long sums, or a column: a group each, whose work-items share the sum.
kernel void matmul_dot(global const storage_t* a, global const storage_t* b, global storage_t* c,
                       long m, long n, long k) {
  local float scratch[SHARERS];
  const long e = get_group_id(0), row = e / n, from = e % n;
  const float sum = group_dot(a + row * k, b + from, n, k, scratch);
  if (get_local_id(0) == 0) STORE(c, e, sum);
}

#ifdef PORTKERN_CPU
#define ROWS 6
// On a CPU: ROWS rows of two vectors per work-item, in registers.
kernel void matmul_cpu(global const storage_t* a, global const storage_t* b, global storage_t* c,
                       long m, long n, long k) {
  const long left = (long)get_global_id(1) * 2 * VEC, top = (long)get_global_id(0) * ROWS;
  if (top + ROWS <= m && left + 2 * VEC <= n) {
    vec_t s0[ROWS], s1[ROWS];
    for (int i = 0; i < ROWS; ++i) s0[i] = s1[i] = 0.0f;
    for (long p = 0; p < k; ++p) {
      const vec_t b0 = LOADV(b, p * n + left), b1 = LOADV(b, p * n + left + VEC);
      for (int i = 0; i < ROWS; ++i) {
        const vec_t x = LOAD(a, (top + i) * k + p);
        s0[i] += x * b0;
        s1[i] += x * b1;
      }
    }
    for (int i = 0; i < ROWS; ++i) {
      STOREV(c, (top + i) * n + left, s0[i]);
      STOREV(c, (top + i) * n + left + VEC, s1[i]);
    }
    return;
  }
  for (long i = top; i < min(top + ROWS, m); ++i)
    for (long j = left; j < min(left + 2 * VEC, n); ++j) {
      float sum = 0.0f;
      for (long p = 0; p < k; ++p) sum += LOAD(a, i * k + p) * LOAD(b, p * n + j);
      STORE(c, i * n + j, sum);
    }
}
#endif
"""


def matmul(queue, program, a, b, c, *, m, n, k):
    if m == 0 or n == 0:
        return
    if program.cpu:
        size = (-(-m // 6), -(-n // (2 * program.vec)))
        program.matmul_cpu(queue, size, (1, 1), a, b, c, m, n, k)
        return
    if k >= SHORT and (n == 1 or m * n <= FEW):
        program.matmul_dot(queue, (m * n * SHARERS,), (SHARERS,), a, b, c, m, n, k)
        return
    if min(m, n) < 16:
        groups = -(-(m * n) // SHARERS)
        program.matmul_thin(queue, (groups * SHARERS,), (SHARERS,), a, b, c, m, n, k)
        return
    items = (BM // TM) * (BN // TN)
    size = (-(-n // BN) * items, -(-m // BM))
    program.matmul(queue, size, (items, 1), a, b, c, m, n, k)
