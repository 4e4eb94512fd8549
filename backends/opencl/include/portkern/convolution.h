// A convolution as the product of the filters, f x (c kh kw), and the windows below them, which no
// memory holds: a work-item gathers elements of one window, neighbours those of neighbouring windows.
#define NOWHERE (-(1 << 29))  // a row that no image has

typedef struct {
  long n, c, f;
  int h, w, kh, kw, oh, ow, stride, padding;
} shape_t;

// A window's corner, which may lie outside of its image.
typedef struct {
  global const storage_t* at;
  int top, left;
} corner_t;

INLINE corner_t corner_of(global const storage_t* x, shape_t s, long image, int row, int column,
                          bool exists) {
  corner_t corner;
  corner.top = exists ? row * s.stride - s.padding : NOWHERE;
  corner.left = column * s.stride - s.padding;
  corner.at = x + image * s.c * s.h * s.w + (exists ? corner.top * (long)s.w + corner.left : 0);
  return corner;
}

// Element q of a filter: how far from the corner, how far down and to the right.
INLINE int4 tap_of(int q, shape_t s) {
  const int filter = s.kh * s.kw, channel = q / filter, i = q % filter / s.kw, j = q % s.kw;
  if (channel >= s.c) return (int4)(0, NOWHERE, 0, 0);
  return (int4)((channel * s.h + i) * s.w + j, i, j, 0);
}

// An element of 16 bits is kept as it is; two of them, from below each other, are a word.
#ifdef TENSOR_CORES
#define IN_WORD 2
INLINE word_t bits_at(corner_t corner, int4 tap, bool inside) {
  return inside ? ((global const ushort*)corner.at)[tap.x] : 0;
}
#define WORD(first, second) ((first) | (second) << 16)
#else
#define IN_WORD 1
INLINE word_t bits_at(corner_t corner, int4 tap, bool inside) {
  return inside ? LOAD(corner.at, tap.x) : 0.0f;
}
#define WORD(first, second) (first)
#endif

INLINE word_t gather(corner_t corner, int4 tap, shape_t s) {
  const int row = corner.top + tap.y, column = corner.left + tap.z;
  return bits_at(corner, tap, (uint)row < (uint)s.h && (uint)column < (uint)s.w);
}

// The sums of filters from `first` on and bn windows, of which a work-item knows that of its own
// index modulo bn, over elements `from` to `end` of the filters. `taps`: two times STEP.
INLINE void convolve(float* sums, corner_t corner, global const storage_t* weight, shape_t s,
                     long first, int from, int end, const int bm, const int bn, const int wn,
                     local word_t* memory, local int4* taps, local uint* exchange) {
  const int me = get_local_id(0), across_warps = bn / wn, items = bm * bn / wn, k = s.c * s.kh * s.kw;
  const int warp_row = me / 32 / across_warps * 32, warp_column = me / 32 % across_warps * wn;
  const int words = STEP / IN_WORD / (items / bn), own = me / bn * words;
  const bool packed = k % PACK == 0;
  UNROLL for (int i = 0; i < wn; ++i) sums[i] = 0.0f;
  if (me < STEP) taps[me] = tap_of(from + me, s);
  barrier(CLK_LOCAL_MEM_FENCE);
  pack_t filters[4];
  word_t windows[STEP / IN_WORD];
  int turn = 0;
  for (int p = from - STEP; p < end; p += STEP) {
    const int next = p + STEP;
    local const int4* tap = taps + turn * STEP + own * IN_WORD;
    if (next < end) {
      UNROLL for (int i = 0; i < bm * 4 / items; ++i) {
        const int e = me + i * items, column = next + e % 4 * PACK;
        const long row = first + e / 4;
        filters[i] = load_pack(weight, row * k + column, row < s.f ? end - column : 0, packed);
      }
      UNROLL for (int i = 0; i < words; ++i)
        windows[i] = WORD(gather(corner, tap[i * IN_WORD], s),
                          gather(corner, tap[i * IN_WORD + IN_WORD - 1], s));
    }
    if (p >= from) {
      local const word_t* tile = memory + (1 - turn) * (WORDS_A(bm) + WORDS_B(bn));
      multiply(sums, tile, tile + WORDS_A(bm), bm, bn, wn, warp_row, warp_column, exchange);
    }
    if (next < end) {
      local word_t* tile = memory + turn * (WORDS_A(bm) + WORDS_B(bn));
      UNROLL for (int i = 0; i < bm * 4 / items; ++i) {
        const int e = me + i * items;
        put_left(tile, bm, e / 4, e % 4, filters[i]);
      }
      UNROLL for (int i = 0; i < words; ++i)
        tile[WORDS_A(bm) + (own + i) * PITCH_B(bn) + me % bn] = windows[i];
      if (me < STEP) taps[(1 - turn) * STEP + me] = tap_of(next + STEP + me, s);
    }
    turn = 1 - turn;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
