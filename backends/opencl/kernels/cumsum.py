WG = 256  # knob: 64 128 256 512
SLICE = 16  # knob: 8 16 32

SOURCE = r"""
// The row's sum so far goes from round to round, its rounding error beside it (Knuth's two-sum),
// so that the last column is as exact as the first. An infinity has no error.
inline void carry_on(float* carry, float* error, float sum) {
  const float add = sum + *error, next = *carry + add, part = next - *carry;
  *error = (*carry - (next - part)) + (add - part);
  if (*error != *error) *error = 0.0f;
  *carry = next;
}

// One group per row. In each round a work-item has a vector in each of four stripes as wide as the
// group, and the group scans four sums at once: one work-item those of a SLICE of neighbours, then
// everyone the slices'. That takes two barriers. `whole` says that rows consist of whole vectors.
inline void scan(global const storage_t* restrict x, global storage_t* restrict y, long cols,
                 local float4* sums, local float4* slices, const bool whole) {
  const long start = (long)get_group_id(0) * cols;
  const int me = get_local_id(0), size = get_local_size(0), step = size * VEC;
  const int mine = me + me / SLICE;  // a gap after each slice: they begin in different banks
  float carry = 0.0f, error = 0.0f;
  for (long round = 0; round < cols; round += 4 * step) {
    const long first = round + me * VEC;
    vec_t v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const long i = first + k * step;
      v[k] = i >= cols ? (vec_t)(0.0f)
             : whole   ? LOADV(x, start + i)
                       : LOADROW(x, start, i, cols, 0.0f);
    }
    float4 sum;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int j = 1; j < VEC; ++j) ((float*)&v[k])[j] += ((float*)&v[k])[j - 1];
      ((float*)&sum)[k] = ((float*)&v[k])[VEC - 1];
    }
    sums[mine] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < size / SLICE) {
      float4 total = 0.0f;
#pragma unroll
      for (int j = 0; j < SLICE; ++j) {
        const float4 next = sums[me * (SLICE + 1) + j];
        sums[me * (SLICE + 1) + j] = total;
        total += next;
      }
      slices[me] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 before = sums[mine], all = 0.0f;
    for (int s = 0; s < size / SLICE; ++s) {
      if (s == me / SLICE) before += all;
      all += slices[s];
    }
    before += (float4)(0.0f, all.x, all.x + all.y, (all.x + all.y) + all.z);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const long i = first + k * step;
      const vec_t done = carry + (error + (((float*)&before)[k] + v[k]));
      if (whole && i < cols) STOREV(y, start + i, done);
      if (!whole && i < cols) STOREROW(y, start, i, cols, done);
    }
    carry_on(&carry, &error, (all.x + all.y) + (all.z + all.w));
  }
}

kernel void cumsum(global const storage_t* restrict x, global storage_t* restrict y, long cols) {
  local float4 sums[WG + WG / SLICE], slices[WG / SLICE];
  scan(x, y, cols, sums, slices, true);
}

kernel void cumsum_odd(global const storage_t* restrict x, global storage_t* restrict y,
                       long cols) {
  local float4 sums[WG + WG / SLICE], slices[WG / SLICE];
  scan(x, y, cols, sums, slices, false);
}

#ifdef PORTKERN_CPU
// On a CPU a work-item does a row, a vector at a time: three rounds scan its eight elements.
kernel void cumsum_cpu(global const storage_t* x, global storage_t* y, long cols) {
  const long start = get_global_id(0) * cols;
  float carry = 0.0f, error = 0.0f;
  for (long first = 0; first < cols; first += VEC) {
    const bool whole = first + VEC <= cols;
    float8 v = whole ? LOADV(x, start + first) : LOADROW(x, start, first, cols, 0.0f);
    v += (float8)(0.0f, v.s012, v.s3456);
    v += (float8)(0.0f, 0.0f, v.s01, v.s2345);
    v += (float8)((float4)(0.0f), v.s0123);
    const float8 done = carry + (error + v);
    if (whole) STOREV(y, start + first, done);
    else STOREROW(y, start, first, cols, done);
    carry_on(&carry, &error, v.s7);
  }
}
#endif
"""


def cumsum(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        program.cumsum_cpu(queue, (rows,), (1,), x, y, cols)
        return
    wg = min(WG, -(-int(cols) // (4 * program.vec * 32)) * 32)
    kernel = program.cumsum_odd if cols % program.vec else program.cumsum
    kernel(queue, (rows * wg,), (wg,), x, y, cols)
