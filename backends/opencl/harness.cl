// What stands before every OpenCL kernel: how a float of this cell's dtype is stored.
//
// Portable kernels cannot assume cl_khr_fp16 (NVIDIA's driver and PoCL have none), so values are
// float32 in registers and storage_t in memory. STORE rounds once, to nearest even.
// The build defines one of PORTKERN_FLOAT32, _FLOAT16, _BFLOAT16 and, on a CPU, PORTKERN_CPU.

#if defined(PORTKERN_FLOAT32) && !defined(PORTKERN_CPU)
#define VEC 4  // 16 bytes, the widest access of a GPU's thread
#else
#define VEC 8  // the same for halves, and on a CPU a register of AVX2
#endif

#define PORTKERN_JOIN_(a, b) a##b
#define PORTKERN_JOIN(a, b) PORTKERN_JOIN_(a, b)
typedef PORTKERN_JOIN(float, VEC) vec_t;
typedef PORTKERN_JOIN(int, VEC) ivec_t;
typedef PORTKERN_JOIN(uint, VEC) uvec_t;
typedef PORTKERN_JOIN(ushort, VEC) hvec_t;

// Whether LOADV and STOREV may start at every multiple of n: a GPU needs aligned vectors.
#ifdef PORTKERN_CPU
#define VECTORS(n) true
#else
#define VECTORS(n) ((n) % VEC == 0)
#endif

#ifdef PORTKERN_CPU
// A vector at any address: what vload and vstore would say. But where PoCL's library was built for
// another CPU it calls each of its functions, select, min and fmax too: inner loops go without.
typedef struct __attribute__((packed)) { vec_t v; } floats_t;
typedef struct __attribute__((packed)) { hvec_t v; } halves_t;
#endif

#if defined(PORTKERN_FLOAT32)
typedef float storage_t;
inline float LOAD(global const float* p, long i) { return p[i]; }
inline void STORE(global float* p, long i, float v) { p[i] = v; }
#ifdef PORTKERN_CPU
inline vec_t LOADV(global const float* p, long i) { return ((global const floats_t*)(p + i))->v; }
inline void STOREV(global float* p, long i, vec_t v) { ((global floats_t*)(p + i))->v = v; }
#else
inline vec_t LOADV(global const float* p, long i) { return *(global const vec_t*)(p + i); }
inline void STOREV(global float* p, long i, vec_t v) { *(global vec_t*)(p + i) = v; }
#endif

#elif defined(PORTKERN_FLOAT16)
typedef half storage_t;
#if defined(PORTKERN_CPU) && defined(__clang__)
inline float LOAD(global const half* p, long i) { return __builtin_load_halff(p + i); }
#else
inline float LOAD(global const half* p, long i) { return vload_half(0, p + i); }
#endif
inline void STORE(global half* p, long i, float v) { vstore_half_rte(v, 0, p + i); }
#ifdef PORTKERN_CPU
inline vec_t LOADV(global const half* p, long i) {
  return PORTKERN_JOIN(vload_half, VEC)(0, p + i);
}
inline void STOREV(global half* p, long i, vec_t v) {
  PORTKERN_JOIN(PORTKERN_JOIN(vstore_half, VEC), _rte)(v, 0, p + i);
}
#elif defined(__NV_CL_C_VERSION)
// NVIDIA's vloada_half and vstorea_half take 2 bytes at a time, which makes them up to 4 times as
// slow as 16 at once. The instructions that they use convert in registers.
inline vec_t LOADV(global const half* p, long i) {
  const ulong2 bits = *(global const ulong2*)(p + i);
  float a, b, c, d, e, f, g, h;
  asm("{ .reg .b16 a, b, c, d;"
      "mov.b64 {a, b, c, d}, %8; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;"
      "cvt.f32.f16 %2, c; cvt.f32.f16 %3, d;"
      "mov.b64 {a, b, c, d}, %9; cvt.f32.f16 %4, a; cvt.f32.f16 %5, b;"
      "cvt.f32.f16 %6, c; cvt.f32.f16 %7, d; }"
      : "=f"(a), "=f"(b), "=f"(c), "=f"(d), "=f"(e), "=f"(f), "=f"(g), "=f"(h)
      : "l"(bits.x), "l"(bits.y));
  return (vec_t)(a, b, c, d, e, f, g, h);
}
inline ulong to_halves(float4 v) {
  ulong bits;
  asm("{ .reg .b16 a, b, c, d;"
      "cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; cvt.rn.f16.f32 c, %3; cvt.rn.f16.f32 d, %4;"
      "mov.b64 %0, {a, b, c, d}; }"
      : "=l"(bits) : "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w));
  return bits;
}
inline void STOREV(global half* p, long i, vec_t v) {
  *(global ulong2*)(p + i) = (ulong2)(to_halves(v.lo), to_halves(v.hi));
}
#else
inline vec_t LOADV(global const half* p, long i) {
  return PORTKERN_JOIN(vloada_half, VEC)(0, p + i);
}
inline void STOREV(global half* p, long i, vec_t v) {
  PORTKERN_JOIN(PORTKERN_JOIN(vstorea_half, VEC), _rte)(v, 0, p + i);
}
#endif

#elif defined(PORTKERN_BFLOAT16)
typedef ushort storage_t;
inline float LOAD(global const ushort* p, long i) { return as_float((uint)p[i] << 16); }
inline ushort to_bfloat16(float v) {
  const uint u = as_uint(v);
  return isnan(v) ? (ushort)(u >> 16 | 0x40) : (ushort)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline void STORE(global ushort* p, long i, float v) { p[i] = to_bfloat16(v); }
inline vec_t LOADV(global const ushort* p, long i) {
#ifdef PORTKERN_CPU
  const hvec_t h = ((global const halves_t*)(p + i))->v;
#else
  const hvec_t h = *(global const hvec_t*)(p + i);
#endif
  return PORTKERN_JOIN(as_float, VEC)(PORTKERN_JOIN(convert_uint, VEC)(h) << 16);
}
inline void STOREV(global ushort* p, long i, vec_t v) {
  const uvec_t u = PORTKERN_JOIN(as_uint, VEC)(v);
  const uvec_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  const hvec_t h = PORTKERN_JOIN(convert_ushort, VEC)(v != v ? u >> 16 | 0x40 : rounded);
#ifdef PORTKERN_CPU
  ((global halves_t*)(p + i))->v = h;
#else
  *(global hvec_t*)(p + i) = h;
#endif
}
#endif

// VEC elements from i on, a multiple of VEC, of the row of n that begins at `start`: a vector where
// one may be read, else one by one. Beyond the row's end LOADROW gives `fill`, STOREROW writes none.
inline vec_t LOADROW(global const storage_t* p, long start, long i, long n, float fill) {
  if (VECTORS(start) && i + VEC <= n) return LOADV(p, start + i);
  vec_t v;
#pragma unroll
  for (int j = 0; j < VEC; ++j) ((float*)&v)[j] = i + j < n ? LOAD(p, start + i + j) : fill;
  return v;
}
inline void STOREROW(global storage_t* p, long start, long i, long n, vec_t v) {
  if (VECTORS(start) && i + VEC <= n) {
    STOREV(p, start + i, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < VEC; ++j)
    if (i + j < n) STORE(p, start + i + j, ((float*)&v)[j]);
}

// e**v within 1.2e-7 of its value: 0 far below, infinity far above, NaN for NaN.
inline vec_t EXPV(vec_t v) {
#ifndef PORTKERN_CPU
  return exp(v);
#else
  v = v < -104.0f ? (vec_t)(-104.0f) : v;
  v = v > 89.0f ? (vec_t)(89.0f) : v;
  // Adding 1.5 * 2**23 leaves the nearest integer of v / ln 2 in the low bits. ln 2 in two parts: the
  // first has 10 bits, so that its product is exact.
  const vec_t shifted = v * 1.44269504f + 12582912.0f, whole = shifted - 12582912.0f;
  const vec_t r = (v - whole * 0.693359375f) + whole * 2.12194440e-4f;
  vec_t p = r * 1.38145964e-3f + 8.36871709e-3f;
  p = p * r + 4.16683881e-2f;
  p = p * r + 1.66665206e-1f;
  p = p * r + 4.99999934e-1f;
  p = (p * r) * r + r + 1.0f;
  // In two steps, because 2**-150 and 2**128 have no float of their own.
  const ivec_t n = PORTKERN_JOIN(as_int, VEC)(shifted) - 0x4b400000, part = n >> 1;
  return p * PORTKERN_JOIN(as_float, VEC)((part + 127) << 23) *
         PORTKERN_JOIN(as_float, VEC)((n - part + 127) << 23);
#endif
}

inline float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }
inline float max4(float4 v) { return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); }

// The sum and the maximum of a vector's elements.
#if VEC == 4
inline float sum_of(vec_t v) { return sum4(v); }
inline float max_of(vec_t v) { return max4(v); }
#else
inline float sum_of(vec_t v) { return sum4(v.lo + v.hi); }
inline float max_of(vec_t v) { return max4(fmax(v.lo, v.hi)); }
#endif

// The row of a work-item: narrow rows share a group, with an index of its second dimension each.
inline long row_of(void) {
  return (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
}

// Over all work-items of a row; everyone gets the result. `scratch` has one element per work-item of
// the group. Every work-item must call. Two stages, as a barrier costs more than some additions:
// the first SLICES work-items take the others' values together, then everyone theirs.
#define SLICES 16

inline float group_sum(float v, local float* scratch) {
  const int me = get_local_id(0), size = get_local_size(0);
  if (size == 1) return v;
  scratch += get_local_id(1) * size;
  scratch[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me < SLICES) {
    for (int i = me + SLICES; i < size; i += SLICES) v += scratch[i];
    scratch[me] = v;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  v = 0.0f;
#pragma unroll
  for (int i = 0; i < SLICES; ++i) v += i < size ? scratch[i] : 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  return v;
}

inline float group_max(float v, local float* scratch) {
  const int me = get_local_id(0), size = get_local_size(0);
  if (size == 1) return v;
  scratch += get_local_id(1) * size;
  scratch[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me < SLICES) {
    for (int i = me + SLICES; i < size; i += SLICES) v = fmax(v, scratch[i]);
    scratch[me] = v;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int i = 0; i < SLICES; ++i) v = fmax(v, i < size ? scratch[i] : v);
  barrier(CLK_LOCAL_MEM_FENCE);
  return v;
}

// The sum of a[i] * b[i * step] over n of each. The work-items of a row share it; all must call.
#define DOT_CHAIN 64  // terms in a chain of additions; the error grows with the number of chains

inline float group_dot(global const storage_t* a, global const storage_t* b, long step, long n,
                       local float* scratch) {
  const long size = get_local_size(0);
  float sum = 0.0f;
  for (long i = get_local_id(0); i < n;) {
    float part = 0.0f;
    for (int k = 0; k < DOT_CHAIN && i < n; ++k, i += size)
      part = fma(LOAD(a, i), LOAD(b, i * step), part);
    sum += part;
  }
  return group_sum(sum, scratch);
}
