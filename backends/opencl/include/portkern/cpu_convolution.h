// A convolution on a CPU, after cpu_tile.h: the product of the filters, f x (c kh kw), and the windows
// below them, whose elements are gathered for a block of windows and are then there for all filters.
typedef struct {
  long n, c, f;
  int h, w, kh, kw, oh, ow, stride, padding;
} shape_t;

// Element (r, s) of the windows of `count` neighbours in a line: `x` is its channel, and the first
// window has its corner at `top`, `left`.
INLINE void gather_run(float* to, global const storage_t* x, int count, int top, int left,
                       shape_t s) {
  const bool there = top >= 0 && top < s.h;
  global const storage_t* line = x + top * (long)s.w;
  for (int i = 0; i < count; i += VEC) {
    const int first = left + i * s.stride, end = first + (VEC - 1) * s.stride + 1;
    vec_t v = 0.0f;
    if (there && first >= 0 && end <= s.w) {
      if (s.stride == 1) v = LOADV(line, first);
      else
#pragma unroll
        for (int l = 0; l < VEC; ++l) ((float*)&v)[l] = LOAD(line, first + l * s.stride);
    } else if (there) {
      for (int l = 0; l < VEC; ++l) {
        const int at = first + l * s.stride;
        if (i + l < count && at >= 0 && at < s.w) ((float*)&v)[l] = LOAD(line, at);
      }
    }
    *(floats_t*)(to + i) = (floats_t){v};
  }
}

// The sums of `rows` filters from `top` on and `cols` windows, from window `first` on of those that
// stand `across` in a line below (`down`, `right`), over a whole image.
INLINE void convolve(local float* left, local wide_t* right, local wide_t* sums,
                     global const storage_t* x, global const storage_t* weight, shape_t s, int rows,
                     int cols, int first, int across, int down, int right_) {
  const int k = s.c * s.kh * s.kw;
  clear(sums, rows, cols);
  int r = 0, e = 0;
  for (int p = 0; p < k; p += DEPTH) {
    const int depth = min(DEPTH, k - p);
    pack_left(left, weight + p, k, rows, depth);
    for (int q = 0; q < depth; ++q) {
      float line[BROAD + VEC];
      for (int i = 0, row = first / across, col = first % across; i < cols; ++row, col = 0) {
        const int count = min(across - col, cols - i);
        gather_run(line + i, x, count, (down + row) * s.stride - s.padding + r,
                   (right_ + col) * s.stride - s.padding + e, s);
        i += count;
      }
      for (int l = 0; l < cols; l += VEC)
        *(local vec_t*)right_of(right, q, l) = ((floats_t*)(line + l))->v;
      if (++e < s.kw) continue;
      e = 0;
      if (++r < s.kh) continue;
      r = 0;
      x += s.h * (long)s.w;
    }
    multiply_block(left, right, sums, rows, cols, depth);
  }
}
