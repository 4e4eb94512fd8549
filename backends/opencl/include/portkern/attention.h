// Causal attention on tensor cores. A group has 64 queries, a warp 16 of them: it goes through the
// keys in blocks of 64 and keeps the queries, the scores and the sums in registers. Scores are, as
// mma.sync gives them, already where the second product wants its left operand.
#define SIDE 64    // queries of a group, and keys of a block
#define GROUP 128  // work-items

// The value of the work-item whose index differs in the bit `other`, one of the lowest two.
#ifdef __NV_CL_C_VERSION
INLINE float of_other(float v, int other, local uint* exchange) {
  uint got;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(got) : "r"(as_uint(v)), "r"(other));
  return as_float(got);
}
INLINE uint two_halves(float first, float second) {
  uint both;
#ifdef PORTKERN_FLOAT16
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
  return both;
}
#else
INLINE float of_other(float v, int other, local uint* exchange) {
  barrier(CLK_LOCAL_MEM_FENCE);
  exchange[get_local_id(0)] = as_uint(v);
  barrier(CLK_LOCAL_MEM_FENCE);
  return as_float(exchange[get_local_id(0) ^ other]);
}
INLINE uint half_bits(float v) {
#ifdef PORTKERN_FLOAT16
  uchar bytes[2] __attribute__((aligned(2)));  // bytes may be seen as anything
  vstore_half_rte(v, 0, (half*)bytes);
  return bytes[0] | bytes[1] << 8;
#else
  const uint u = as_uint(v);
  return isnan(v) ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
#endif
}
INLINE uint two_halves(float first, float second) {
  return half_bits(first) | half_bits(second) << 16;
}
#endif

// Elements d and d + 1 of a query.
INLINE uint two_of(global const storage_t* q, long query, long length, int d, int dim) {
  global const ushort* bits = (global const ushort*)q + query * dim + d;
  if (query >= length) return 0;
  return (d < dim ? bits[0] : 0) | (d + 1 < dim ? (uint)bits[1] << 16 : 0);
}

// Keys as they lie, values in pairs, zeros for what is not there: both in words.
INLINE void fetch(global const storage_t* k, global const storage_t* v, long key, long length,
                  int dim, const int columns, local uint* keys, local uint* values) {
  const int me = get_local_id(0), packs = columns / PACK;
  const bool packed = dim % PACK == 0;
  pack_t key_packs[8], value_packs[8];
  UNROLL for (int i = 0; i < (SIDE * packs + GROUP - 1) / GROUP; ++i) {
    const int e = me + i * GROUP, row = e / packs, d = e % packs * PACK;
    const bool real = row < SIDE && key + row < length;
    key_packs[i] = load_pack(k, (key + row) * dim + d, real ? dim - d : 0, packed);
  }
  UNROLL for (int i = 0; i < (SIDE / 2 * packs + GROUP - 1) / GROUP; ++i) {
    const int e = me + i * GROUP, row = e / packs * 2, d = e % packs * PACK;
    UNROLL for (int u = 0; u < 2; ++u) {
      const bool real = row < SIDE && key + row + u < length;
      value_packs[2 * i + u] = load_pack(v, (key + row + u) * dim + d, real ? dim - d : 0, packed);
    }
  }
  UNROLL for (int i = 0; i < (SIDE * packs + GROUP - 1) / GROUP; ++i) {
    const int e = me + i * GROUP, row = e / packs;
    if (row >= SIDE) continue;
    *(local uint4*)(keys + row * (columns / 2 + 4) + e % packs * 4) = key_packs[i];
  }
  UNROLL for (int i = 0; i < (SIDE / 2 * packs + GROUP - 1) / GROUP; ++i) {
    const int e = me + i * GROUP;
    if (e / packs >= SIDE / 2) continue;
    put_right(values, columns, e / packs, e % packs, value_packs[2 * i], value_packs[2 * i + 1]);
  }
}

// Scores become powers; totals and sums shrink as the maxima of the two rows rise. A row belongs to
// four neighbouring work-items.
INLINE void weigh(float* scores, float* sums, float* tops, float* totals, float scale, long first_key,
                  long first_query, const int columns, local uint* exchange) {
  const int lane = get_local_id(0) % 32;
  UNROLL for (int r = 0; r < 2; ++r) {
    const int query = lane / 4 + r * 8;
    float top = tops[r];
    UNROLL for (int s = 2 * r; s < SIDE / 2; s += 4)
      UNROLL for (int e = 0; e < 2; ++e) {
        const int key = s / 4 * 8 + lane % 4 * 2 + e;
        if (first_key + key > first_query + query) scores[s + e] = -INFINITY;
        top = fmax(top, scores[s + e]);
      }
    top = fmax(top, of_other(top, 1, exchange));
    top = fmax(top, of_other(top, 2, exchange));
    const float shrink = exp2((tops[r] - top) * scale);
    totals[r] *= shrink;
    UNROLL for (int s = 2 * r; s < SIDE / 2; s += 4)
      UNROLL for (int e = 0; e < 2; ++e) {
        scores[s + e] = exp2((scores[s + e] - top) * scale);
        totals[r] += scores[s + e];
      }
    UNROLL for (int s = 2 * r; s < columns / 2; s += 4) {
      sums[s] *= shrink;
      sums[s + 1] *= shrink;
    }
    tops[r] = top;
  }
}

INLINE void attend_fast(global const storage_t* q, global const storage_t* k,
                        global const storage_t* v, global storage_t* y, long length, int dim,
                        const int columns, local uint* keys, local uint* values,
                        local uint* exchange) {
  const int me = get_local_id(0), of_eight = me % 32 / 4, in_four = me % 4;
  const long blocks = (length + SIDE - 1) / SIDE, group = get_group_id(0);
  const long first = (blocks - 1 - group % blocks) * SIDE;  // the longest first
  const long head = group / blocks * length * dim, own = first + me / 32 * 16;
  const float scale = 1.44269504f / sqrt((float)dim);  // for powers of two
  q += head;
  k += head;
  v += head;
  uint4 queries[8];
  UNROLL for (int d = 0; d < columns; d += 16) {
    const int at = d + in_four * 2;
    const long query = own + of_eight;
    queries[d / 16] = (uint4)(two_of(q, query, length, at, dim), two_of(q, query + 8, length, at, dim),
                              two_of(q, query, length, at + 8, dim),
                              two_of(q, query + 8, length, at + 8, dim));
  }
  float sums[64], tops[2] = {-FLT_MAX, -FLT_MAX}, totals[2] = {0.0f, 0.0f};
  UNROLL for (int i = 0; i < columns / 2; ++i) sums[i] = 0.0f;
  for (long key = 0; key < min(first + SIDE, length); key += SIDE) {
    barrier(CLK_LOCAL_MEM_FENCE);
    fetch(k, v, key, length, dim, columns, keys, values);
    barrier(CLK_LOCAL_MEM_FENCE);
    float scores[SIDE / 2];
    UNROLL for (int i = 0; i < SIDE / 2; ++i) scores[i] = 0.0f;
    UNROLL for (int d = 0; d < columns; d += 16)
      UNROLL for (int j = 0; j < SIDE / 8; ++j) {
        local const uint* at = keys + (j * 8 + of_eight) * (columns / 2 + 4) + d / 2 + in_four;
        mma(scores + j * 4, queries[d / 16], (uint2)(at[0], at[4]), exchange);
      }
    weigh(scores, sums, tops, totals, scale, key, own, columns, exchange);
    UNROLL for (int j = 0; j < SIDE / 16; ++j) {
      float* s = scores + j * 8;
      const uint4 weights = (uint4)(two_halves(s[0], s[1]), two_halves(s[2], s[3]),
                                    two_halves(s[4], s[5]), two_halves(s[6], s[7]));
      UNROLL for (int d = 0; d < columns; d += 8) {
        local const uint* at = values + (j * 8 + in_four) * PITCH_B(columns) + d + of_eight;
        mma(sums + d / 2, weights, (uint2)(at[0], at[4 * PITCH_B(columns)]), exchange);
      }
    }
  }
  UNROLL for (int r = 0; r < 2; ++r) {
    float total = totals[r] + of_other(totals[r], 1, exchange);
    total += of_other(total, 2, exchange);
    const long query = own + of_eight + r * 8;
    UNROLL for (int s = 2 * r; s < columns / 2; s += 4)
      UNROLL for (int e = 0; e < 2; ++e) {
        const int d = s / 4 * 8 + in_four * 2 + e;
        if (query < length && d < dim) STORE(y, head + query * dim + d, sums[s + e] / total);
      }
  }
}

#define FAST(COLUMNS)                                                                             \
  kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void fast_##COLUMNS(                  \
      global const storage_t* q, global const storage_t* k, global const storage_t* v,            \
      global storage_t* y, long length, int dim) {                                                \
    local uint keys[SIDE * (COLUMNS / 2 + 4)] __attribute__((aligned(16)));                       \
    local uint values[SIDE / 2 * PITCH_B(COLUMNS)] __attribute__((aligned(16)));                  \
    local uint exchange[EXCHANGE];                                                                \
    attend_fast(q, k, v, y, length, dim, COLUMNS, keys, values, exchange);                        \
  }
FAST(32)
FAST(48)
FAST(64)
FAST(80)
FAST(96)
FAST(128)
