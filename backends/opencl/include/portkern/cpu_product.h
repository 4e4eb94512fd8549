// Products of a batch on a CPU, after cpu_tile.h: C = A B, where B holds char after
// `#define INT8_WEIGHTS`, and column j is multiplied by scale[j]. multiply_cpu of product.py chooses.
#ifdef INT8_WEIGHTS
typedef char right_t;
typedef struct __attribute__((packed)) { PORTKERN_JOIN(char, VEC) v; } loose_t;  // at any address
INLINE float LOADB(global const char* b, long i) { return b[i]; }
INLINE vec_t LOADBV(global const char* b, long i) {
#ifdef __clang__  // PoCL's convert_float8 is a call
  return __builtin_convertvector(((global const loose_t*)(b + i))->v, vec_t);
#else
  return PORTKERN_JOIN(convert_float, VEC)(((global const loose_t*)(b + i))->v);
#endif
}
#define SCALEDV(v, j) ((v) * LOADROW(scale, 0, j, n, 0.0f))
#define SCALED(v, j) ((v) * LOAD(scale, j))
#else
typedef storage_t right_t;
INLINE float LOADB(global const storage_t* b, long i) { return LOAD(b, i); }
INLINE vec_t LOADBV(global const storage_t* b, long i) { return LOADV(b, i); }
#define SCALEDV(v, j) (v)
#define SCALED(v, j) (v)
#endif
#define FEW_ROWS 12  // and the most columns of a strip of few rows
#define STRIP 512
#define AHEAD 4

// VEC columns from j on, of a row that begins at `row`; zeros beyond its end.
INLINE vec_t right_at(global const right_t* b, long row, long j, long n) {
  if (j + VEC <= n) return LOADBV(b, row + j);
  vec_t v = 0.0f;
  for (int l = 0; j + l < n; ++l) ((float*)&v)[l] = LOADB(b, row + j + l);
  return v;
}

// The sums of row i from column j on: to C, or of a part of the depth to `parts`.
INLINE void put(global storage_t* c, global const storage_t* scale, global float* parts, long part,
                int splits, long m, long n, long i, long j, vec_t v) {
  if (splits == 1) {
    STOREROW(c, i * n, j, n, SCALEDV(v, j));
    return;
  }
  global float* to = parts + (part * m + i) * n + j;
  if (j + VEC <= n) ((global floats_t*)to)->v = v;
  else for (int l = 0; j + l < n; ++l) to[l] = ((float*)&v)[l];
}

// A block of `tall` rows and `broad` columns; of the depth, a `share`.
kernel void product_cpu(global const storage_t* a, global const right_t* b,
                        global const storage_t* scale, global storage_t* c, global float* parts,
                        long m, long n, long k, long share, int splits, int tall, int broad) {
  local float left[TALL * PITCH];
  local wide_t right[BROAD * DEPTH / WIDE], sums[TALL * BROAD / WIDE];
  const long top = get_global_id(0) * tall, j = get_global_id(1) * broad;
  const long batch = get_global_id(2) / splits, part = get_global_id(2) % splits;
  const int rows = min((long)tall, m - top), cols = min((long)broad, n - j);
  const long last = min((part + 1) * share, k);
  a += (batch * m + top) * k;
  b += batch * k * n;
  clear(sums, rows, cols);
  for (long p = part * share; p < last; p += DEPTH) {
    const int depth = min((long)DEPTH, last - p);
    pack_left(left, a + p, k, rows, depth);
    for (int q = 0; q < depth; ++q)
      for (int l = 0; l < cols; l += VEC)
        *(local vec_t*)right_of(right, q, l) = right_at(b, (p + q) * n, j + l, n);
    multiply_block(left, right, sums, rows, cols, depth);
  }
  for (int i = 0; i < rows; ++i)
    for (int l = 0; l < cols; l += VEC)
      put(c, scale, parts, part, splits, get_global_size(2) / splits * m, n, batch * m + top + i,
          j + l, *(local const vec_t*)sums_of(sums, i, l));
}

// Few rows: B is read in the order of memory, a strip of `broad` columns of AHEAD rows at a time,
// and sums come from the nearest cache for as many terms.
kernel void few_rows_cpu(global const storage_t* a, global const right_t* b,
                         global const storage_t* scale, global storage_t* c, global float* parts,
                         long m, long n, long k, long share, int splits, int broad) {
  local vec_t sums[FEW_ROWS * STRIP / VEC];
  float x[FEW_ROWS][AHEAD];
  const long j = get_global_id(0) * broad;
  const int cols = min((long)broad, n - j), across = (cols + VEC - 1) / VEC;
  const long batch = get_global_id(2) / splits, part = get_global_id(2) % splits;
  const long last = min((part + 1) * share, k), all = get_global_size(2) / splits * m;
  a += batch * m * k;
  b += batch * k * n;
  for (int i = 0; i < m * across; ++i) sums[i] = 0.0f;
  for (long p = part * share; p < last; p += AHEAD) {
    const int there = min((long)AHEAD, last - p);
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int u = 0; u < AHEAD; ++u) x[i][u] = u < there ? LOAD(a, i * k + p + u) : 0.0f;
    for (int l = 0; l < across; ++l) {
      vec_t v[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; ++u)
        v[u] = u < there ? right_at(b, (p + u) * n, j + l * VEC, n) : (vec_t)(0.0f);
      for (int i = 0; i < m; ++i) {
        vec_t sum = sums[i * across + l];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) sum += x[i][u] * v[u];
        sums[i * across + l] = sum;
      }
    }
  }
  for (int i = 0; i < m; ++i)
    for (int l = 0; l < across; ++l)
      put(c, scale, parts, part, splits, all, n, batch * m + i, j + l * VEC,
          sums[i * across + l]);
}

// Few columns: a work-item has `tall` rows, against columns of B that it first lays out one after
// the other, DEPTH terms at a time.
kernel void few_columns_cpu(global const storage_t* a, global const right_t* b,
                            global const storage_t* scale, global storage_t* c,
                            global float* parts, long m, long n, long k, long share, int splits,
                            int tall) {
  local float columns[8 * DEPTH] __attribute__((aligned(32))), sums[8 * TALL];
  const long top = get_global_id(0) * tall;
  const int rows = min((long)tall, m - top);
  const long batch = get_global_id(2) / splits, part = get_global_id(2) % splits;
  const long last = min((part + 1) * share, k), all = get_global_size(2) / splits * m;
  a += (batch * m + top) * k;
  b += batch * k * n;
  for (int i = 0; i < rows * n; ++i) sums[i] = 0.0f;
  for (long p = part * share; p < last; p += DEPTH) {
    const int depth = min((long)DEPTH, last - p), whole = depth / VEC * VEC;
    for (int q = 0; q < whole && n == 1; q += VEC)
      *(local vec_t*)(columns + q) = LOADBV(b, p + q);
    for (int q = n == 1 ? whole : 0; q < depth; ++q)
      for (int j = 0; j < n; ++j) columns[j * DEPTH + q] = LOADB(b, (p + q) * n + j);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < n; ++j) {
        global const storage_t* row = a + i * k + p;
        local const float* column = columns + j * DEPTH;
        vec_t s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
        int q = 0;
        for (; q + 4 * VEC <= whole; q += 4 * VEC) {
          s0 += LOADV(row, q) * *(local const vec_t*)(column + q);
          s1 += LOADV(row, q + VEC) * *(local const vec_t*)(column + q + VEC);
          s2 += LOADV(row, q + 2 * VEC) * *(local const vec_t*)(column + q + 2 * VEC);
          s3 += LOADV(row, q + 3 * VEC) * *(local const vec_t*)(column + q + 3 * VEC);
        }
        for (; q < whole; q += VEC) s0 += LOADV(row, q) * *(local const vec_t*)(column + q);
        float sum = sum_of((s0 + s1) + (s2 + s3));
        for (; q < depth; ++q) sum += LOAD(row, q) * column[q];
        sums[i * n + j] += sum;
      }
  }
  const long to = (batch * m + top) * n;
  for (int i = 0; i < rows * n; ++i) {
    if (splits == 1) STORE(c, to + i, SCALED(sums[i], i % n));
    else parts[part * all * n + to + i] = sums[i];
  }
}

// Few columns of little depth: the elements of C one after the other, so many to a work-item.
kernel void shallow_cpu(global const storage_t* a, global const right_t* b,
                        global const storage_t* scale, global storage_t* c, long m, long n, long k,
                        long count, long each) {
  const long first = get_global_id(0) * each, last = min(first + each, count);
  long row = first / n, batch = row / m, j = first % n, i = row % m;
  for (long e = first; e < last; ++e) {
    float sum = 0.0f;
    for (int p = 0; p < k; ++p) sum += LOAD(a, row * k + p) * LOADB(b, (batch * k + p) * n + j);
    STORE(c, e, SCALED(sum, j));
    if (++j < n) continue;
    j = 0;
    ++row;
    if (++i < m) continue;
    i = 0;
    ++batch;
  }
}

kernel void add_parts_cpu(global const float* parts, global const storage_t* scale,
                          global storage_t* c, long count, long n, int splits) {
  const long i = get_global_id(0) * VEC;
  for (long e = i; e < min(i + VEC, count); ++e) {
    float sum = 0.0f;
    for (int s = 0; s < splits; ++s) sum += parts[s * count + e];
    STORE(c, e, SCALED(sum, e % n));
  }
}
