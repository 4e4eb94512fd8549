// Products of a batch by tiles of bm x bn. The next STEP of both operands are on their way while
// those in local memory are multiplied. Few tiles share the depth: a group takes `share` of k and
// leaves its part in `parts`, which add_parts adds up.
#ifdef INT8_WEIGHTS
typedef PORTKERN_JOIN(char, PACK) right_pack_t;
INLINE right_pack_t load_right(global const char* p, long i, long there, bool aligned) {
  if (aligned) return there > 0 ? *(global const right_pack_t*)(p + i) : (right_pack_t)(0);
  right_pack_t v;
  UNROLL for (int j = 0; j < PACK; ++j) ((char*)&v)[j] = j < there ? p[i + j] : 0;
  return v;
}
// Weights are exact in every type.
#if defined(TENSOR_CORES) && defined(PORTKERN_FLOAT16)
INLINE uint8 bits_of(float8 v) {  // of a half that is whole and not large
  const uint8 u = as_uint8(v), h = (u >> 16 & 0x8000) | ((u & 0x7fffffff) - (112 << 23)) >> 13;
  return v == 0.0f ? (uint8)(0) : h;
}
#elif defined(TENSOR_CORES)
INLINE uint8 bits_of(float8 v) { return as_uint8(v) >> 16; }
#endif
INLINE pack_t unpacked(right_pack_t v) {
#ifdef TENSOR_CORES
  const uint8 bits = bits_of(convert_float8(v));
  return bits.even | bits.odd << 16;
#else
  return convert_float4(v);
#endif
}
#else
typedef pack_t right_pack_t;
INLINE pack_t load_right(global const storage_t* p, long i, long there, bool aligned) {
  return load_pack(p, i, there, aligned);
}
INLINE pack_t unpacked(pack_t v) { return v; }
#endif

// The tiles of a matrix in bands of BAND, so that groups at work at the same time share operands.
#define BAND 8
INLINE long2 place_of(long tile, long across, long down) {
  const long band = tile / (BAND * across), within = tile - band * BAND * across;
  const long height = min((long)BAND, down - band * BAND);
  return (long2)(band * BAND + within % height, within / height);
}

INLINE void store_sums(const float* sums, global const storage_t* scale, global storage_t* c,
                       global float* parts, long row0, long column0, long m, long n, const int wn) {
  const int lane = get_local_id(0) % 32;
  UNROLL for (int s = 0; s < wn; s += TOGETHER) {
    const long row = row0 + sum_row(s, lane, wn), column = column0 + sum_column(s, lane, wn);
    if (row >= m) continue;
    UNROLL for (int e = 0; e < TOGETHER; ++e) {
      if (column + e >= n) continue;
      if (parts) parts[row * n + column + e] = sums[s + e];
      else STORE(c, row * n + column + e, SCALED(sums[s + e], column + e));
    }
  }
}

INLINE void product(global const storage_t* a, global const right_t* b,
                    global const storage_t* scale, global storage_t* c, global float* parts,
                    long batch, long m, long n, long k, long share, int splits, const int bm,
                    const int bn, const int wn, local word_t* memory, local uint* exchange) {
  const int me = get_local_id(0), across_warps = bn / wn, items = bm / 32 * across_warps * 32;
  const long across = (n + bn - 1) / bn, down = (m + bm - 1) / bm, group = get_group_id(0);
  const long split = group % splits, tile = group / splits, which = tile / (across * down);
  const long2 place = place_of(tile - which * across * down, across, down);
  const long top = place.x * bm, left = place.y * bn, end = min(k, (split + 1) * share);
  const int warp_row = me / 32 / across_warps * 32, warp_column = me / 32 % across_warps * wn;
  const bool packed_a = k % PACK == 0, packed_b = n % PACK == 0;
  a += which * m * k;
  b += which * k * n;
  float sums[64];
  UNROLL for (int s = 0; s < wn; ++s) sums[s] = 0.0f;
  pack_t lefts[4];
  right_pack_t rights[4][2];
  int turn = 0;
  for (long p = split * share - STEP; p < end; p += STEP) {
    const long next = p + STEP;
    if (next < end) {
      UNROLL for (int i = 0; i < bm * 4 / items; ++i) {
        const int e = me + i * items, pack = e % 4;
        const long row = top + e / 4, column = next + pack * PACK;
        lefts[i] = load_pack(a, row * k + column, row < m ? end - column : 0, packed_a);
      }
      UNROLL for (int i = 0; i < (bn * 2 + items - 1) / items; ++i) {
        const int e = me + i * items, pair = e / (bn / PACK);
        const long row = next + pair * 2, column = left + e % (bn / PACK) * PACK;
        const long there = e < bn * 2 ? n - column : 0;
        rights[i][0] = load_right(b, row * n + column, row < end ? there : 0, packed_b);
        rights[i][1] = load_right(b, row * n + n + column, row + 1 < end ? there : 0, packed_b);
      }
    }
    if (p >= split * share) {
      local const word_t* from = memory + turn * (WORDS_A(bm) + WORDS_B(bn));
      multiply(sums, from, from + WORDS_A(bm), bm, bn, wn, warp_row, warp_column, exchange);
      turn = 1 - turn;
    }
    if (next < end) {
      local word_t* to = memory + turn * (WORDS_A(bm) + WORDS_B(bn));
      UNROLL for (int i = 0; i < bm * 4 / items; ++i) {
        const int e = me + i * items;
        put_left(to, bm, e / 4, e % 4, lefts[i]);
      }
      UNROLL for (int i = 0; i < (bn * 2 + items - 1) / items; ++i) {
        const int e = me + i * items;
        if (e >= bn * 2) continue;
        put_right(to + WORDS_A(bm), bn, e / (bn / PACK), e % (bn / PACK), unpacked(rights[i][0]),
                  unpacked(rights[i][1]));
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c += which * m * n;
  parts = splits > 1 ? parts + (split * batch + which) * m * n : 0;
  store_sums(sums, scale, c, parts, top + warp_row, left + warp_column, m, n, wn);
}

// With constant sides the sums stay in registers.
#define PRODUCT(BM, BN, WN)                                                                       \
  kernel __attribute__((reqd_work_group_size(BM * BN / WN, 1, 1))) void product_##BM##x##BN(      \
      global const storage_t* a, global const right_t* b, global const storage_t* scale,          \
      global storage_t* c, global float* parts, long batch, long m, long n, long k, long share,   \
      int splits) {                                                                               \
    local word_t memory[2 * (WORDS_A(BM) + WORDS_B(BN))] __attribute__((aligned(16)));            \
    local uint exchange[EXCHANGE];                                                                \
    product(a, b, scale, c, parts, batch, m, n, k, share, splits, BM, BN, WN, memory, exchange);  \
  }
PRODUCT(128, 128, 64)
PRODUCT(64, 64, 32)
PRODUCT(32, 128, 32)
PRODUCT(128, 32, 32)
