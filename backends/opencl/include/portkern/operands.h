// The operands of products: A and C hold storage_t; so does B, unless INT8_WEIGHTS is defined: then
// it holds char, and column j of the product is multiplied by scale[j].
#define UNROLL _Pragma("unroll")
// A function that is not inlined would not know its constant arguments, and might not be there.
#define INLINE static inline __attribute__((always_inline))

#ifdef INT8_WEIGHTS
typedef char right_t;
INLINE float LOADB(global const char* b, long i) { return b[i]; }
INLINE vec_t LOADBV(global const char* b, long i) {
  return PORTKERN_JOIN(convert_float, VEC)(*(global const PORTKERN_JOIN(char, VEC)*)(b + i));
}
#define SCALED(sum, column) ((sum) * LOAD(scale, column))
#else
typedef storage_t right_t;
INLINE float LOADB(global const storage_t* b, long i) { return LOAD(b, i); }
INLINE vec_t LOADBV(global const storage_t* b, long i) { return LOADV(b, i); }
#define SCALED(sum, column) (sum)
#endif

// Elements p to p + 3; `packed`: p is a multiple of 4.
INLINE float4 four(global const storage_t* a, long p, bool packed) {
#if defined(PORTKERN_FLOAT32)
  if (packed) return *(global const float4*)(a + p);
#elif defined(PORTKERN_BFLOAT16)
  if (packed) return as_float4(convert_uint4(*(global const ushort4*)(a + p)) << 16);
#endif
  return (float4)(LOAD(a, p), LOAD(a, p + 1), LOAD(a, p + 2), LOAD(a, p + 3));
}

// The same of which `there` exist, with zeros for the others; `packed`: all or none of them do.
INLINE float4 four_of(global const storage_t* a, long p, long there, bool packed) {
  if (packed) return there > 0 ? four(a, p, true) : (float4)(0.0f);
  return (float4)(0 < there ? LOAD(a, p) : 0.0f, 1 < there ? LOAD(a, p + 1) : 0.0f,
                  2 < there ? LOAD(a, p + 2) : 0.0f, 3 < there ? LOAD(a, p + 3) : 0.0f);
}
