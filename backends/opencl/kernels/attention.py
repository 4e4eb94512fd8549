import numpy

SLICE = 32  # knob: 16 32
KEYS = 16  # knob: 8 16 32

SOURCE = r"""
#define MOST 256  // elements of a head

#ifndef PORTKERN_CPU
#include <portkern/operands.h>
#include <portkern/tile.h>
#ifdef TENSOR_CORES
#include <portkern/attention.h>
#endif

#define SIDE 64     // queries of a group, and keys of a block
#define STRIDE 17   // float4 of a line of 64 elements, and one to put columns in different banks

// A group of 16 x 16 work-items goes through the keys in blocks; a work-item has the scores of 4
// queries and 4 keys, and 4 * parts columns of the 4 queries' sums. The running maxima are known to
// all 16 work-items of a query, the sums of weights are theirs until the end.
INLINE void attend(global const storage_t* q, global const storage_t* k, global const storage_t* v,
                   global storage_t* y, long length, int dim, const int parts,
                   local float4* slice, local float4* weights) {
  const int me = get_local_id(0), tx = me % 16, ty = me / 16;
  const long blocks = (length + SIDE - 1) / SIDE, group = get_group_id(0);
  const long first = (blocks - 1 - group % blocks) * SIDE;  // the longest first
  const long head = group / blocks * length * dim;
  const float scale = 1.0f / sqrt((float)dim);
  const bool packed = dim % 4 == 0;
  local float* elements = (local float*)slice;
  float tops[4], totals[4];
  float4 sums[4][MOST / 64];
  UNROLL for (int i = 0; i < 4; ++i) {
    tops[i] = -FLT_MAX;  // the difference of two infinities would be NaN
    totals[i] = 0.0f;
    UNROLL for (int j = 0; j < parts; ++j) sums[i][j] = 0.0f;
  }
  for (long key = 0; key < min(first + SIDE, length); key += SIDE) {
    float4 scores[4];
    UNROLL for (int i = 0; i < 4; ++i) scores[i] = 0.0f;
    for (int d = 0; d < dim; d += SLICE) {
      UNROLL for (int e = me; e < SLICE / 4 * SIDE; e += 256) {
        const int r = e / (SLICE / 4), p = e % (SLICE / 4) * 4, there = dim - d - p;
        const long i = head + (first + r) * dim + d + p, j = head + (key + r) * dim + d + p;
        const float4 query = four_of(q, i, first + r < length ? there : 0, packed) * scale;
        const float4 other = four_of(k, j, key + r < length ? there : 0, packed);
        UNROLL for (int u = 0; u < 4; ++u) {
          elements[(p + u) * STRIDE * 4 + r] = ((const float*)&query)[u];
          elements[(SLICE + p + u) * STRIDE * 4 + r] = ((const float*)&other)[u];
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
      for (int p = 0; p < min(SLICE, dim - d); ++p) {
        float a[4];
        vstore4(slice[p * STRIDE + ty], 0, a);
        UNROLL for (int i = 0; i < 4; ++i)
          scores[i] = fma(a[i], slice[(SLICE + p) * STRIDE + tx], scores[i]);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int4 last = convert_int4(key + tx * 4 + (long4)(0, 1, 2, 3) - first - ty * 4);
    UNROLL for (int i = 0; i < 4; ++i) {
      scores[i] = last > i ? (float4)(-INFINITY) : scores[i];
      elements[(ty * 4 + i) * 16 + tx] = max4(scores[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 powers[4];
    UNROLL for (int i = 0; i < 4; ++i) {
      float top = tops[i];
      UNROLL for (int j = 0; j < 4; ++j) top = fmax(top, max4(slice[(ty * 4 + i) * 4 + j]));
      const float shrink = exp(tops[i] - top);
      powers[i] = exp(scores[i] - top);
      totals[i] = totals[i] * shrink + sum4(powers[i]);
      UNROLL for (int j = 0; j < parts; ++j) sums[i][j] *= shrink;
      tops[i] = top;
    }
    local float4* to = weights + tx * 4 * STRIDE + ty;
    to[0] = (float4)(powers[0].x, powers[1].x, powers[2].x, powers[3].x);
    to[STRIDE] = (float4)(powers[0].y, powers[1].y, powers[2].y, powers[3].y);
    to[2 * STRIDE] = (float4)(powers[0].z, powers[1].z, powers[2].z, powers[3].z);
    to[3 * STRIDE] = (float4)(powers[0].w, powers[1].w, powers[2].w, powers[3].w);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 0; s < SIDE; s += 2 * SLICE / parts) {
      UNROLL for (int e = me; e < 2 * SLICE * 16; e += 256) {
        const int r = e / (parts * 16), d = e % (parts * 16) * 4;
        const int there = key + s + r < length ? dim - d : 0;
        slice[e] = four_of(v, head + (key + s + r) * dim + d, there, packed);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
      for (int r = 0; r < 2 * SLICE / parts; ++r) {
        float a[4];
        vstore4(weights[(s + r) * STRIDE + ty], 0, a);
        UNROLL for (int i = 0; i < 4; ++i)
          UNROLL for (int j = 0; j < parts; ++j)
            sums[i][j] = fma(a[i], slice[(r * parts + j) * 16 + tx], sums[i][j]);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
  UNROLL for (int i = 0; i < 4; ++i) elements[(ty * 4 + i) * 16 + tx] = totals[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int i = 0; i < 4; ++i) {
    float total = 0.0f;
    UNROLL for (int j = 0; j < 4; ++j) total += sum4(slice[(ty * 4 + i) * 4 + j]);
    const long query = first + ty * 4 + i;
    UNROLL for (int j = 0; j < parts; ++j) {
      float out[4];
      vstore4(sums[i][j] / total, 0, out);
      UNROLL for (int p = 0; p < 4; ++p) {
        const int d = j * 64 + tx * 4 + p;
        if (query < length && d < dim) STORE(y, head + query * dim + d, out[p]);
      }
    }
  }
}

// With a constant number of parts the sums stay in registers.
#define KERNEL(NAME, PARTS)                                                                \
  kernel void NAME(global const storage_t* q, global const storage_t* k,                   \
                   global const storage_t* v, global storage_t* y, long length, int dim) { \
    local float4 slice[2 * SLICE * STRIDE], weights[SIDE * STRIDE];                        \
    attend(q, k, v, y, length, dim, PARTS, slice, weights);                                \
  }
KERNEL(attention_64, 1)
KERNEL(attention_128, 2)
KERNEL(attention_256, 4)

#else
#define ROWS 4
#define SCORE(i, j) ((float*)weights[i])[j]

// On a CPU: ROWS queries per work-item, KEYS keys at a time; two keys, or two vectors of the sums,
// make enough independent chains of additions.
kernel void attention_cpu(global const storage_t* q, global const storage_t* k,
                          global const storage_t* v, global storage_t* y, long length, int dim) {
  const long blocks = (length + ROWS - 1) / ROWS, first = get_global_id(0) % blocks * ROWS;
  const long head = get_global_id(0) / blocks * length * dim;
  const long end = min(first + ROWS, length);
  const float scale = 1.0f / sqrt((float)dim);
  vec_t queries[ROWS][MOST / VEC], sums[ROWS][MOST / VEC], weights[ROWS][KEYS / VEC];
  float tops[ROWS], totals[ROWS];
  for (int i = 0; i < ROWS; ++i) {  // a query beyond the last repeats it
    tops[i] = -FLT_MAX;
    totals[i] = 0.0f;
    for (int d = 0; d < min(dim + VEC, MOST); d += VEC) {  // two vectors are added at a time
      const vec_t one = LOADROW(q, head + min(first + i, length - 1) * dim, d, dim, 0.0f);
      queries[i][d / VEC] = one * scale;
      sums[i][d / VEC] = 0.0f;
    }
  }
  for (long key = 0; key < end; key += KEYS) {
    const int here = min((long)KEYS, end - key);
    for (int i = 0; i < ROWS && here < KEYS; ++i)
      for (int j = 0; j < KEYS / VEC; ++j) weights[i][j] = -INFINITY;
    for (int j = 0; j < here; j += 2) {
      const long key0 = key + j < end ? key + j : end - 1, key1 = key0 + 1 < end ? key0 + 1 : key0;
      vec_t dots0[ROWS], dots1[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) dots0[i] = dots1[i] = 0.0f;
      for (int d = 0; d < dim; d += VEC) {
        const vec_t one = LOADROW(k, head + key0 * dim, d, dim, 0.0f);
        const vec_t other = LOADROW(k, head + key1 * dim, d, dim, 0.0f);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          dots0[i] += queries[i][d / VEC] * one;
          dots1[i] += queries[i][d / VEC] * other;
        }
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        SCORE(i, j) = key + j <= first + i ? sum_of(dots0[i]) : -INFINITY;
        SCORE(i, j + 1) = key + j + 1 <= first + i ? sum_of(dots1[i]) : -INFINITY;
      }
    }
    float shrink[ROWS];
    for (int i = 0; i < ROWS; ++i) {
      float top = tops[i];
      for (int j = 0; j < KEYS; ++j) top = SCORE(i, j) > top ? SCORE(i, j) : top;
      shrink[i] = exp(tops[i] - top);
      tops[i] = top;
      vec_t total = 0.0f;
      for (int j = 0; j < KEYS / VEC; ++j) total += weights[i][j] = EXPV(weights[i][j] - top);
      totals[i] = totals[i] * shrink[i] + sum_of(total);
    }
    for (int d = 0; d < dim; d += 2 * VEC) {
      vec_t s0[ROWS], s1[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        s0[i] = sums[i][d / VEC] * shrink[i];
        s1[i] = sums[i][d / VEC + 1] * shrink[i];
      }
      for (int j = 0; j < here; ++j) {
        const long row = head + (key + j) * dim;
        const vec_t one = LOADROW(v, row, d, dim, 0.0f);
        const vec_t other = LOADROW(v, row, d + VEC, dim, 0.0f);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          s0[i] += SCORE(i, j) * one;
          s1[i] += SCORE(i, j) * other;
        }
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        sums[i][d / VEC] = s0[i];
        sums[i][d / VEC + 1] = s1[i];
      }
    }
  }
  for (int i = 0; i < end - first; ++i)
    for (int d = 0; d < dim; d += VEC)
      STOREROW(y, head + (first + i) * dim, d, dim, sums[i][d / VEC] / totals[i]);
}
#endif
"""


def attention(queue, program, q, k, v, y, *, batch, heads, length, dim):
    if dim > 256:
        raise ValueError(f"attention: got heads of {dim} elements, expected at most 256")
    if batch * heads * length * dim == 0:
        return
    arguments = (q, k, v, y, length, numpy.int32(dim))
    if program.cpu:
        queue = program.nearby(queue, batch * heads * length * (length + 8) * dim // 4)
        program.attention_cpu(queue, (batch * heads * -(-length // 4),), (1,), *arguments)
        return
    fast = [columns for columns in (32, 48, 64, 80, 96, 128) if dim <= columns]
    if program.tensor_cores and fast:
        kernel = getattr(program, f"fast_{fast[0]}")
        kernel(queue, (batch * heads * -(-length // 64) * 128,), (128,), *arguments)
        return
    if dim <= 64:
        kernel = program.attention_64
    else:
        kernel = program.attention_128 if dim <= 128 else program.attention_256
    kernel(queue, (batch * heads * -(-length // 64) * 256,), (256,), *arguments)
