BM = 128  # knob: 64 128
BN = 128  # knob: 64 128
BK = 16  # knob: 8 16
WG = 256  # knob: 64 128 256
ROWS = 6  # knob: 4 6

SOURCE = r"""
#define ACROSS (BN / 8)
#define ITEMS (BM / 8 * ACROSS)

// A group makes a BM x BN tile of C. A work-item makes 8 x 8 of it, in quads that lie half a tile
// apart: neighbours read neighbouring float4 of local memory. Weights are exact as floats.
kernel void int8_matmul(global const storage_t* a, global const char* weight,
                        global const storage_t* scale, global storage_t* c, long m, long n,
                        long k) {
  local float4 as[BK][BM / 4 + 1], bs[BK][BN / 4];
  const int me = get_local_id(0), column = me % ACROSS, row = me / ACROSS;
  const long across = (n + BN - 1) / BN, tile = get_group_id(0);
  const long left = tile % across * BN, top = tile / across * BM;
  float4 sums[8][2];
  for (int i = 0; i < 8; ++i) sums[i][0] = sums[i][1] = 0.0f;
  for (long p = 0; p < k; p += BK) {
    for (int e = me; e < BM * BK; e += ITEMS) {
      const int i = e / BK, q = e % BK;
      ((local float*)as[q])[i] = top + i < m && p + q < k ? LOAD(a, (top + i) * k + p + q) : 0.0f;
    }
    for (int e = me; e < BK * BN; e += ITEMS) {
      const int q = e / BN, j = e % BN;
      ((local float*)bs[q])[j] = left + j < n && p + q < k ? weight[(p + q) * n + left + j] : 0;
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
      if (r < m && s < n) STORE(c, r * n + s, out[j] * LOAD(scale, s));
    }
  }
}

#define LANES 8                // work-items side by side, of 4 columns each
#define SLICES (WG / LANES)    // of the same columns, which share the k products of each
#define FEW 8                  // rows of C

inline float4 weights(global const char* row, long j, long n) {
  if (n % 4 == 0 && j < n) return convert_float4(*(global const char4*)(row + j));
  return (float4)(j < n ? row[j] : 0, j + 1 < n ? row[j + 1] : 0, j + 2 < n ? row[j + 2] : 0,
                  j + 3 < n ? row[j + 3] : 0);
}

// With few rows the weights are read once and hardly used: narrow strips of them make enough groups
// to keep the memory busy.
kernel void int8_matmul_thin(global const storage_t* a, global const char* weight,
                             global const storage_t* scale, global storage_t* c, long m, long n,
                             long k) {
  local float4 parts[WG];
  const int me = get_local_id(0), slice = me / LANES;
  const long strips = (n + LANES * 4 - 1) / (LANES * 4), top = get_group_id(0) / strips * FEW;
  const long j = get_group_id(0) % strips * LANES * 4 + me % LANES * 4;
  const int rows = min((long)FEW, m - top);
  float4 sums[FEW];
  for (int i = 0; i < FEW; ++i) sums[i] = 0.0f;
#pragma unroll 4
  for (long p = slice; p < k; p += SLICES) {
    const float4 w = weights(weight + p * n, j, n);
    for (int i = 0; i < FEW; ++i)
      if (i < rows) sums[i] = fma(LOAD(a, (top + i) * k + p), w, sums[i]);
  }
  for (int i = 0; i < rows; ++i) {
    parts[me] = sums[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = SLICES / 2; width > 0; width /= 2) {
      if (slice < width) parts[me] += parts[me + width * LANES];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    float out[4];
    vstore4(parts[me], 0, out);
    for (int q = 0; q < 4 && slice == 0 && j + q < n; ++q)
      STORE(c, (top + i) * n + j + q, out[q] * LOAD(scale, j + q));
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

#ifdef PORTKERN_CPU
typedef struct __attribute__((packed)) { PORTKERN_JOIN(char, VEC) v; } loose_t;  // at any address

inline vec_t weight_vector(global const char* row, long j, long n) {
  if (j + VEC <= n) return PORTKERN_JOIN(convert_float, VEC)(((global const loose_t*)(row + j))->v);
  float v[VEC];
  for (int q = 0; q < VEC; ++q) v[q] = j + q < n ? row[j + q] : 0;
  return PORTKERN_JOIN(vload, VEC)(0, v);
}

// On a CPU: ROWS rows of two vectors per work-item, in registers. Rows beyond the last repeat it.
kernel void int8_matmul_cpu(global const storage_t* a, global const char* weight,
                            global const storage_t* scale, global storage_t* c, long m, long n,
                            long k) {
  const long top = (long)get_global_id(0) * ROWS, left = (long)get_global_id(1) * 2 * VEC;
  long from[ROWS];
  vec_t s0[ROWS], s1[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    from[i] = min(top + i, m - 1) * k;
    s0[i] = s1[i] = 0.0f;
  }
  for (long p = 0; p < k; ++p) {
    const vec_t w0 = weight_vector(weight + p * n, left, n);
    const vec_t w1 = weight_vector(weight + p * n, left + VEC, n);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const vec_t x = LOAD(a, from[i] + p);
      s0[i] += x * w0;
      s1[i] += x * w1;
    }
  }
  const vec_t scale0 = LOADROW(scale, 0, left, n, 0.0f);
  const vec_t scale1 = LOADROW(scale, 0, left + VEC, n, 0.0f);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (top + i >= m) break;
    STOREROW(c, (top + i) * n, left, n, s0[i] * scale0);
    STOREROW(c, (top + i) * n, left + VEC, n, s1[i] * scale1);
  }
}
#endif
"""


def int8_matmul(queue, program, a, weight, scale, c, *, m, n, k):
    if m == 0 or n == 0:
        return
    if program.cpu:
        size = (-(-m // ROWS), -(-n // (2 * program.vec)))
        program.int8_matmul_cpu(queue, size, (1, 1), a, weight, scale, c, m, n, k)
    elif m <= 32:
        groups = -(-n // 32) * -(-m // 8)
        program.int8_matmul_thin(queue, (groups * WG,), (WG,), a, weight, scale, c, m, n, k)
    else:
        items = (BM // 8) * (BN // 8)
        tiles = -(-m // BM) * -(-n // BN)
        program.int8_matmul(queue, (tiles * items,), (items,), a, weight, scale, c, m, n, k)
