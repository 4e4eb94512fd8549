// Rows of fewer elements than a vector, on a CPU: a work-item has VEC of them, one to a lane.
typedef struct {
  long first, rows, cols;
} slim_t;

// Element j of each; rows beyond the last repeat it.
inline vec_t take_column(global const storage_t* x, slim_t s, long j) {
  x += s.first * s.cols + j;
  vec_t v;
  if (s.first + VEC <= s.rows) {
    if (s.cols == 1) return LOADV(x, 0);
#pragma unroll
    for (int l = 0; l < VEC; ++l) ((float*)&v)[l] = LOAD(x, l * s.cols);
  } else {
    for (int l = 0; l < VEC; ++l)
      ((float*)&v)[l] = LOAD(x, min((long)l, s.rows - 1 - s.first) * s.cols);
  }
  return v;
}
inline void put_column(global storage_t* y, slim_t s, long j, vec_t v) {
  y += s.first * s.cols + j;
  if (s.cols == 1) {
    STOREROW(y, 0, 0, s.rows - s.first, v);
    return;
  }
#pragma unroll
  for (int l = 0; l < VEC; ++l)
    if (s.first + l < s.rows) STORE(y, l * s.cols, ((float*)&v)[l]);
}
