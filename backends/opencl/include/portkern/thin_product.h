// Products of few rows or columns, or of little depth, of a batch: every element of the large operand
// is read once, in vectors, and used for all rows or columns. Where that makes too few groups, several
// share a sum: each leaves its part in `parts`, which add_parts adds up, always in the same order.
#define THIN 256  // work-items of a group
#define DEEP 4    // rows of B that a work-item has on their way

// Work-items go along the columns, `wide` of them, and meet with those that have other rows of B. A
// work-item has VEC columns: side by side where vectors may be read, else `wide` apart. Rows beyond
// the last repeat it, so that loads have no conditions.
inline void few_rows(global const storage_t* a, global const right_t* b,
                     global const storage_t* scale, global storage_t* c, global float* parts,
                     long batch, long m, long n, long k, long share, int tiles, int splits, int wide,
                     const int rows, local vec_t* sums) {
  const int me = get_local_id(0), x = me % wide, y = me / wide, tall = THIN / wide;
  const long group = get_group_id(0), tile = group % tiles, split = group / tiles % splits;
  const long which = group / tiles / splits, end = min(k, (split + 1) * share);
  const bool packed = VECTORS(n), whole = VECTORS(k);
  const int apart = packed ? 1 : wide;
  const long left = tile * wide * VEC, first = left + (packed ? x * VEC : x);
  a += which * m * k;
  b += which * k * n;
  vec_t totals[16];
  UNROLL for (int i = 0; i < rows; ++i) totals[i] = 0.0f;
  long p = split * share + y * DEEP;
  for (; p + DEEP <= end; p += tall * DEEP) {
    vec_t right[DEEP];
    if (packed) {
      UNROLL for (int u = 0; u < DEEP; ++u) right[u] = LOADBV(b, (p + u) * n + min(first, n - VEC));
    } else {
      UNROLL for (int u = 0; u < DEEP; ++u)
        UNROLL for (int j = 0; j < VEC; ++j)
          ((float*)&right[u])[j] = LOADB(b, (p + u) * n + min(first + j * wide, n - 1));
    }
    UNROLL for (int i = 0; i < rows; ++i) {
      const float4 factors = four(a, min((long)i, m - 1) * k + p, whole);
      totals[i] = fma((vec_t)(factors.x), right[0], totals[i]);
      totals[i] = fma((vec_t)(factors.y), right[1], totals[i]);
      totals[i] = fma((vec_t)(factors.z), right[2], totals[i]);
      totals[i] = fma((vec_t)(factors.w), right[3], totals[i]);
    }
  }
  for (; p < end; ++p) {  // the last rows of k, by whoever has fewer than DEEP
    vec_t right;
    UNROLL for (int j = 0; j < VEC; ++j)
      ((float*)&right)[j] = LOADB(b, p * n + min(first + j * apart, n - 1));
    UNROLL for (int i = 0; i < rows; ++i)
      totals[i] = fma((vec_t)(LOAD(a, min((long)i, m - 1) * k + p)), right, totals[i]);
  }
  UNROLL for (int i = 0; i < rows; ++i) {
    sums[me] = totals[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    // Now a work-item has an element of C, whoever summed it.
    for (int own = me; own < wide * VEC && i < m; own += THIN) {
      float sum = 0.0f;
      for (int r = 0; r < tall; ++r) sum += ((local const float*)sums)[r * wide * VEC + own];
      const long column = left + (packed ? own : own / VEC + own % VEC * wide);
      if (column >= n) continue;
      const long place = (which * m + i) * n + column;
      if (splits > 1) parts[split * batch * m * n + place] = sum;
      else STORE(c, place, SCALED(sum, column));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// With a constant number of rows the totals stay in registers.
#define FEW_ROWS(ROWS)                                                                          \
  kernel void few_rows_##ROWS(global const storage_t* a, global const right_t* b,               \
                              global const storage_t* scale, global storage_t* c,               \
                              global float* parts, long batch, long m, long n, long k,          \
                              long share, int tiles, int splits, int wide) {                    \
    local vec_t sums[THIN];                                                                     \
    few_rows(a, b, scale, c, parts, batch, m, n, k, share, tiles, splits, wide, ROWS, sums);    \
  }
FEW_ROWS(1)
FEW_ROWS(2)
FEW_ROWS(4)
FEW_ROWS(8)
FEW_ROWS(16)

// The work-items of the group's first dimension go along a row of A, VEC elements each: side by side
// where vectors may be read, else one by one in turn.
inline void few_columns(global const storage_t* a, global const right_t* b,
                        global const storage_t* scale, global storage_t* c, global float* parts,
                        long batch, long m, long k, long share, int splits, const int columns,
                        local float* scratch) {
  const int lane = get_local_id(0), lanes = get_local_size(0);
  const long rows = batch * m, split = get_group_id(0) % splits, end = min(k, (split + 1) * share);
  const long own = get_group_id(0) / splits * get_local_size(1) + get_local_id(1);
  const long row = min(own, rows - 1);
  a += row * k;
  b += row / m * k * columns;
  float totals[8];
  UNROLL for (int e = 0; e < columns; ++e) totals[e] = 0.0f;
  if (VECTORS(k)) {
#pragma unroll 2
    for (long p = split * share + lane * VEC; p < end; p += lanes * VEC) {
      const vec_t left = LOADV(a, p);
      vec_t right[8];
      UNROLL for (int e = 0; e < columns; ++e) right[e] = LOADBV(b, p * columns + e * VEC);
      UNROLL for (int j = 0; j < VEC; ++j)
        UNROLL for (int e = 0; e < columns; ++e)
          totals[e] = fma(((float*)&left)[j], ((float*)right)[j * columns + e], totals[e]);
    }
  } else {
#pragma unroll 8
    for (long p = split * share + lane; p < end; p += lanes) {
      const float left = LOAD(a, p);
      UNROLL for (int e = 0; e < columns; ++e)
        totals[e] = fma(left, LOADB(b, p * columns + e), totals[e]);
    }
  }
  UNROLL for (int e = 0; e < columns; ++e) {
    const float sum = group_sum(totals[e], scratch);
    if (lane > 0 || own >= rows) continue;
    if (splits > 1) parts[(split * rows + row) * columns + e] = sum;
    else STORE(c, row * columns + e, SCALED(sum, e));
  }
}

#define FEW_COLUMNS(COLUMNS)                                                                    \
  kernel void few_columns_##COLUMNS(global const storage_t* a, global const right_t* b,         \
                                    global const storage_t* scale, global storage_t* c,         \
                                    global float* parts, long batch, long m, long k,            \
                                    long share, int splits) {                                   \
    local float scratch[THIN];                                                                  \
    few_columns(a, b, scale, c, parts, batch, m, k, share, splits, COLUMNS, scratch);           \
  }
FEW_COLUMNS(1)
FEW_COLUMNS(2)
FEW_COLUMNS(3)
FEW_COLUMNS(4)
FEW_COLUMNS(5)
FEW_COLUMNS(6)
FEW_COLUMNS(7)
FEW_COLUMNS(8)

// Of little depth what is written counts: a work-item has VEC elements of C, whatever rows they are
// of: side by side where rows are whole vectors, else THIN apart.
kernel void shallow(global const storage_t* a, global const right_t* b,
                    global const storage_t* scale, global storage_t* c, long m, long n, long k,
                    ulong count) {
  const ulong base = get_group_id(0) * (ulong)(THIN * VEC), me = get_local_id(0);
  if (VECTORS(n)) {
    const ulong at = base + me * VEC, row = at / n, column = at - row * n;
    if (at >= count) return;
    vec_t sums = 0.0f;
    for (int p = 0; p < k; ++p)
      sums = fma((vec_t)(LOAD(a, row * k + p)), LOADBV(b, (row / m * k + p) * n + column), sums);
#ifdef INT8_WEIGHTS
    sums *= LOADV(scale, column);
#endif
    STOREV(c, at, sums);
    return;
  }
  UNROLL for (int j = 0; j < VEC; ++j) {
    const ulong at = base + j * THIN + me, row = at / n, column = at - row * n;
    if (at >= count) return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
      sum = fma(LOAD(a, row * k + p), LOADB(b, (row / m * k + p) * n + column), sum);
    STORE(c, at, SCALED(sum, column));
  }
}

// What several groups summed of each of `count` elements; a group adds up `wide` of them.
kernel void add_parts(global const float* parts, global const storage_t* scale,
                      global storage_t* c, long count, long n, int splits, int wide) {
  local float scratch[THIN];
  const int me = get_local_id(0);
  const long i = (long)get_group_id(0) * wide + me % wide;
  float total = 0.0f;
#pragma unroll 4
  for (int s = me / wide; s < splits; s += THIN / wide)
    total += parts[s * count + min(i, count - 1)];
  scratch[me] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me >= wide || i >= count) return;
  for (int r = wide; r < THIN; r += wide) total += scratch[me + r];
  STORE(c, i, SCALED(total, i % n));
}
