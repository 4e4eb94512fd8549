// Products of few rows or columns, or of little depth, of a batch: every element of the large operand
// is read once, in vectors, and used for all rows or columns. Where that makes too few groups, several
// share a sum: each leaves its part in `parts`, which add_parts adds up, always in the same order.
#define THIN 128  // work-items of a group; more than one fits where each takes many registers
#define DEEP 4    // rows of B that a work-item has on their way

// Work-items go along the columns, `wide` of them, and meet with those that have other rows of B. A
// work-item has `own` columns: VEC side by side where vectors may be read, else LOOSE that are `wide`
// apart. Rows and columns beyond the last repeat it, so that loads have no conditions.
#define LOOSE 4
INLINE void few_rows(global const storage_t* a, global const right_t* b,
                     global const storage_t* scale, global storage_t* c, global float* parts,
                     long batch, long m, long n, long k, long share, int tiles, int splits, int wide,
                     const int rows, const int own, const bool packed, local float* sums) {
  const int me = get_local_id(0), x = me % wide, y = me / wide, tall = THIN / wide;
  const long group = get_group_id(0), tile = group % tiles, split = group / tiles % splits;
  const long which = group / tiles / splits, end = min(k, (split + 1) * share);
  const long left = tile * wide * own;
  const int last = min(n - left, (long)wide * own) - 1;  // of the tile's columns
  a += which * m * k;
  b += which * k * n + left;
  float totals[16][VEC];
  UNROLL for (int i = 0; i < rows; ++i)
    UNROLL for (int j = 0; j < own; ++j) totals[i][j] = 0.0f;
  long p = split * share + y * DEEP;
#pragma unroll 1
  for (; p + DEEP <= end; p += tall * DEEP) {
    float right[DEEP][VEC];
    UNROLL for (int u = 0; u < DEEP; ++u) {
      global const right_t* row = b + (p + u) * n;
      if (packed) {
        const vec_t v = LOADBV(row, x * VEC <= last ? x * VEC : 0);
        UNROLL for (int j = 0; j < own; ++j) right[u][j] = ((const float*)&v)[j];
      } else {
        UNROLL for (int j = 0; j < own; ++j) right[u][j] = LOADB(row, min(x + j * wide, last));
      }
    }
    UNROLL for (int i = 0; i < rows; ++i) {
      const float4 left4 = four(a, min((long)i, m - 1) * k + p, VECTORS(k));
      UNROLL for (int u = 0; u < DEEP; ++u)
        UNROLL for (int j = 0; j < own; ++j)
          totals[i][j] = fma(((const float*)&left4)[u], right[u][j], totals[i][j]);
    }
  }
#pragma unroll 1
  for (; p < end; ++p)  // the last rows of k, by whoever has fewer than DEEP
    UNROLL for (int j = 0; j < own; ++j) {
      const float right = LOADB(b, p * n + min(packed ? x * own + j : x + j * wide, last));
      UNROLL for (int i = 0; i < rows; ++i)
        totals[i][j] = fma(LOAD(a, min((long)i, m - 1) * k + p), right, totals[i][j]);
    }
  UNROLL for (int i = 0; i < rows; ++i) {
    if (i >= m) break;
    UNROLL for (int j = 0; j < own; ++j)
      sums[y * wide * own + (packed ? x * own + j : x + j * wide)] = totals[i][j];
    barrier(CLK_LOCAL_MEM_FENCE);
    // Now a work-item has an element of C, whoever summed it.
    for (int at = me; at <= last; at += THIN) {
      float sum = 0.0f;
      for (int r = 0; r < tall; ++r) sum += sums[r * wide * own + at];
      const long column = left + at, place = (which * m + i) * n + column;
      if (splits > 1) parts[split * batch * m * n + place] = sum;
      else STORE(c, place, SCALED(sum, column));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// With constants for rows and columns the totals stay in registers.
#define FEW_ROWS_OF(NAME, ROWS, OWN, PACKED)                                                     \
  kernel __attribute__((reqd_work_group_size(THIN, 1, 1))) void NAME(                            \
      global const storage_t* a, global const right_t* b, global const storage_t* scale,         \
      global storage_t* c, global float* parts, long batch, long m, long n, long k, long share,  \
      int tiles, int splits, int wide) {                                                         \
    local float sums[THIN * OWN];                                                                \
    few_rows(a, b, scale, c, parts, batch, m, n, k, share, tiles, splits, wide, ROWS, OWN,       \
             PACKED, sums);                                                                      \
  }
#define FEW_ROWS(ROWS)                                \
  FEW_ROWS_OF(few_rows_##ROWS, ROWS, VEC, true)       \
  FEW_ROWS_OF(few_rows_loose_##ROWS, ROWS, LOOSE, false)
FEW_ROWS(1)
FEW_ROWS(2)
FEW_ROWS(4)
FEW_ROWS(8)
#ifdef PORTKERN_FLOAT32
FEW_ROWS(16)
#endif

// The work-items of the group's first dimension go along a row of A, VEC elements each: side by side
// where vectors may be read, else one by one in turn.
INLINE void few_columns(global const storage_t* a, global const right_t* b,
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

// Divisions of 32 bits, where that does, are much faster.
INLINE long quotient(long a, long b, bool large) { return large ? a / b : (uint)a / (uint)b; }

// Of little depth what is written counts: a work-item has VEC elements of C, whatever rows they are
// of: side by side where rows are whole vectors, else THIN apart.
kernel void shallow(global const storage_t* a, global const right_t* b,
                    global const storage_t* scale, global storage_t* c, long m, long n, long k,
                    long count) {
  const long base = (long)get_group_id(0) * THIN * VEC, me = get_local_id(0);
  const bool large = count >> 31;
  if (VECTORS(n)) {
    const long at = base + me * VEC, row = quotient(at, n, large), column = at - row * n;
    if (at >= count) return;
    const long from = quotient(row, m, large) * k * n + column;
    vec_t sums = 0.0f;
    for (int p = 0; p < k; ++p)
      sums = fma((vec_t)(LOAD(a, row * k + p)), LOADBV(b, from + p * n), sums);
#ifdef INT8_WEIGHTS
    sums *= LOADV(scale, column);
#endif
    STOREV(c, at, sums);
    return;
  }
  UNROLL for (int j = 0; j < VEC; ++j) {
    const long at = base + j * THIN + me, row = quotient(at, n, large), column = at - row * n;
    if (at >= count) return;
    const long from = quotient(row, m, large) * k * n + column;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) sum = fma(LOAD(a, row * k + p), LOADB(b, from + p * n), sum);
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
