// A tile of a product: local memory for STEP columns of A and STEP rows of B, and what work-items
// do with it. Groups are warps of 32 work-items, one-dimensional; a warp makes 32 x WN of the tile, a
// work-item WN sums of it. Elements of 16 bits are multiplied on NVIDIA's tensor cores where there
// are any (PORTKERN_TENSOR_CORES), all others as floats.
#if defined(PORTKERN_TENSOR_CORES) && !defined(PORTKERN_FLOAT32)
#define TENSOR_CORES
#define STEP 32
#define PACK 8  // elements that a work-item copies at once
typedef uint word_t;  // two elements of neighbouring columns of A or rows of B
typedef uint4 pack_t;
#define PITCH_A (STEP / 2 + 4)   // words of a row of A; 8 rows lie in different banks
#define PITCH_B(BN) ((BN) + 8)    // of a pair of rows of B; so do 4 pairs
#define WORDS_A(BM) ((BM) * PITCH_A)
#define WORDS_B(BN) (STEP / 2 * PITCH_B(BN))
#else
#define STEP 16
#define PACK 4
typedef float word_t;
typedef float4 pack_t;
#define PITCH_A(BM) ((BM) + 4)  // A lies transposed
#define PITCH_B(BN) (BN)
#define WORDS_A(BM) (STEP * PITCH_A(BM))
#define WORDS_B(BN) (STEP * PITCH_B(BN))
#endif

#ifdef TENSOR_CORES
// PACK elements from p + i on, of which `there` exist; zeros for the others. `aligned`: all or none do.
INLINE pack_t load_pack(global const storage_t* p, long i, long there, bool aligned) {
  global const ushort* bits = (global const ushort*)p + i;
  if (aligned) return there > 0 ? *(global const uint4*)bits : (uint4)(0);
  uint word[4];
  UNROLL for (int j = 0; j < 4; ++j) {
    word[j] = 2 * j < there ? bits[2 * j] : 0;
    word[j] |= 2 * j + 1 < there ? (uint)bits[2 * j + 1] << 16 : 0;
  }
  return (uint4)(word[0], word[1], word[2], word[3]);
}

INLINE void put_left(local word_t* as, const int bm, int row, int pack, pack_t v) {
  *(local uint4*)(as + row * PITCH_A + pack * 4) = v;
}

// Two rows of B, of whose elements those in one column become a word.
INLINE void put_right(local word_t* bs, const int bn, int pair, int pack, pack_t upper, pack_t lower) {
  local uint4* to = (local uint4*)(bs + pair * PITCH_B(bn) + pack * 8);
  const uint4 even = (upper & 0xffff) | lower << 16, odd = upper >> 16 | (lower & 0xffff0000);
  to[0] = (uint4)(even.x, odd.x, even.y, odd.y);
  to[1] = (uint4)(even.z, odd.z, even.w, odd.w);
}

#ifdef __NV_CL_C_VERSION
#define EXCHANGE 1
#ifdef PORTKERN_FLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
INLINE void mma(float* c, uint4 a, uint2 b, local uint* exchange) {
  float d0, d1, d2, d3;
  asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y),
                 "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  c[0] = d0;
  c[1] = d1;
  c[2] = d2;
  c[3] = d3;
}
#else
// The same by a warp that tells itself its operands, for where no NVIDIA GPU is: which work-item has
// which elements is what PTX says of mma.m16n8k16.
#define EXCHANGE (256 * 6)
INLINE float half_of(uint word, int which) {
  const ushort bits = which ? word >> 16 : word & 0xffff;
#ifdef PORTKERN_FLOAT16
  const uchar bytes[2] __attribute__((aligned(2))) = {bits & 0xff, bits >> 8};  // may be seen as any
  return vload_half(0, (const half*)bytes);
#else
  return as_float((uint)bits << 16);
#endif
}
INLINE void mma(float* c, uint4 a, uint2 b, local uint* exchange) {
  const int me = get_local_id(0), lane = me % 32;
  local uint* warp = exchange + (me - lane) * 6;
  barrier(CLK_LOCAL_MEM_FENCE);
  vstore4(a, 0, warp + lane * 6);
  vstore2(b, 0, warp + lane * 6 + 4);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    float sum = 0.0f;
    for (int p = 0; p < 16; ++p) {
      const uint left = warp[(row % 8 * 4 + p % 8 / 2) * 6 + row / 8 + p / 8 * 2];
      const uint right = warp[(column * 4 + p % 8 / 2) * 6 + 4 + p / 8];
      sum = fma(half_of(left, p % 2), half_of(right, p % 2), sum);
    }
    c[e] += sum;
  }
}
#endif

// Where in a warp's part sum s of a work-item stands.
INLINE int sum_row(int s, int lane, const int wn) { return s / (wn / 2) * 16 + s % 4 / 2 * 8 + lane / 4; }
INLINE int sum_column(int s, int lane, const int wn) {
  return s % (wn / 2) / 4 * 8 + lane % 4 * 2 + s % 2;
}
#define TOGETHER 2  // sums side by side in a row

INLINE void multiply(float* sums, local const word_t* as, local const word_t* bs, const int bm,
                     const int bn, const int wn, int row, int column, local uint* exchange) {
  const int lane = get_local_id(0) % 32, in_four = lane % 4, of_eight = lane / 4;
  as += (row + of_eight) * PITCH_A + in_four;
  bs += in_four * PITCH_B(bn) + column + of_eight;
  UNROLL for (int d = 0; d < STEP / 2; d += 8) {
    uint4 left[2];
    UNROLL for (int i = 0; i < 2; ++i) {
      local const word_t* at = as + i * 16 * PITCH_A + d;
      left[i] = (uint4)(at[0], at[8 * PITCH_A], at[4], at[8 * PITCH_A + 4]);
    }
    UNROLL for (int j = 0; j < wn / 8; ++j) {
      local const word_t* at = bs + d * PITCH_B(bn) + j * 8;
      const uint2 right = (uint2)(at[0], at[4 * PITCH_B(bn)]);
      UNROLL for (int i = 0; i < 2; ++i) mma(sums + (i * wn / 8 + j) * 4, left[i], right, exchange);
    }
  }
}

#else
#define EXCHANGE 1
INLINE pack_t load_pack(global const storage_t* p, long i, long there, bool aligned) {
  return four_of(p, i, there, aligned);
}

INLINE void put_left(local word_t* as, const int bm, int row, int pack, pack_t v) {
  as += pack * 4 * PITCH_A(bm) + row;
  as[0] = v.x;
  as[PITCH_A(bm)] = v.y;
  as[2 * PITCH_A(bm)] = v.z;
  as[3 * PITCH_A(bm)] = v.w;
}

INLINE void put_right(local word_t* bs, const int bn, int pair, int pack, pack_t upper, pack_t lower) {
  local float4* to = (local float4*)(bs + pair * 2 * PITCH_B(bn) + pack * 4);
  to[0] = upper;
  to[PITCH_B(bn) / 4] = lower;
}

INLINE int sum_row(int s, int lane, const int wn) {
  return s / (wn / 2) * 16 + lane / 8 * 4 + s % (wn / 2) / (wn / 8);
}
INLINE int sum_column(int s, int lane, const int wn) {
  return s % (wn / 8) / 4 * 32 + lane % 8 * 4 + s % 4;
}
#define TOGETHER 4

// A work-item has 8 rows, in quads that lie 16 apart, and quads of columns that lie 32 apart:
// neighbours read neighbouring float4 of local memory.
INLINE void multiply(float* sums, local const word_t* as, local const word_t* bs, const int bm,
                     const int bn, const int wn, int row, int column, local uint* exchange) {
  const int lane = get_local_id(0) % 32;
  as += row + lane / 8 * 4;
  bs += column + lane % 8 * 4;
  UNROLL for (int d = 0; d < STEP; ++d) {
    float left[8];
    *(float4*)left = *(local const float4*)(as + d * PITCH_A(bm));
    *(float4*)(left + 4) = *(local const float4*)(as + d * PITCH_A(bm) + 16);
    UNROLL for (int j = 0; j < wn / 32; ++j) {
      const float4 right = *(local const float4*)(bs + d * PITCH_B(bn) + j * 32);
      UNROLL for (int i = 0; i < 8; ++i) {
        float* sum = sums + (i * wn / 32 + j) * 4;
        sum[0] = fma(left[i], right.x, sum[0]);
        sum[1] = fma(left[i], right.y, sum[1]);
        sum[2] = fma(left[i], right.z, sum[2]);
        sum[3] = fma(left[i], right.w, sum[3]);
      }
    }
  }
}
#endif
