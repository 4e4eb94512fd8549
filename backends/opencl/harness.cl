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

#if defined(PORTKERN_FLOAT32)
typedef float storage_t;
inline float LOAD(global const float* p, long i) { return p[i]; }
inline void STORE(global float* p, long i, float v) { p[i] = v; }
#ifdef PORTKERN_CPU
inline vec_t LOADV(global const float* p, long i) { return PORTKERN_JOIN(vload, VEC)(0, p + i); }
inline void STOREV(global float* p, long i, vec_t v) { PORTKERN_JOIN(vstore, VEC)(v, 0, p + i); }
#else
inline vec_t LOADV(global const float* p, long i) { return *(global const vec_t*)(p + i); }
inline void STOREV(global float* p, long i, vec_t v) { *(global vec_t*)(p + i) = v; }
#endif

#elif defined(PORTKERN_FLOAT16)
typedef half storage_t;
inline float LOAD(global const half* p, long i) { return vload_half(0, p + i); }
inline void STORE(global half* p, long i, float v) { vstore_half_rte(v, 0, p + i); }
#ifdef PORTKERN_CPU
inline vec_t LOADV(global const half* p, long i) {
  return PORTKERN_JOIN(vload_half, VEC)(0, p + i);
}
inline void STOREV(global half* p, long i, vec_t v) {
  PORTKERN_JOIN(PORTKERN_JOIN(vstore_half, VEC), _rte)(v, 0, p + i);
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
inline void STORE(global ushort* p, long i, float v) {
  const uint u = as_uint(v);
  p[i] = isnan(v) ? (ushort)(u >> 16 | 0x40) : (ushort)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline vec_t LOADV(global const ushort* p, long i) {
#ifdef PORTKERN_CPU
  const hvec_t h = PORTKERN_JOIN(vload, VEC)(0, p + i);
#else
  const hvec_t h = *(global const hvec_t*)(p + i);
#endif
  return PORTKERN_JOIN(as_float, VEC)(PORTKERN_JOIN(convert_uint, VEC)(h) << 16);
}
inline void STOREV(global ushort* p, long i, vec_t v) {
  const uvec_t u = PORTKERN_JOIN(as_uint, VEC)(v);
  const uvec_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  const hvec_t h =
      PORTKERN_JOIN(convert_ushort, VEC)(select(rounded, u >> 16 | 0x40, isnan(v)));
#ifdef PORTKERN_CPU
  PORTKERN_JOIN(vstore, VEC)(h, 0, p + i);
#else
  *(global hvec_t*)(p + i) = h;
#endif
}
#endif

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

// Over all work-items of a one-dimensional group, whose size is a power of two; everyone gets the
// result. `scratch` has one element per work-item. Every work-item must call.
inline float group_sum(float v, local float* scratch) {
  const int me = get_local_id(0);
  scratch[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int width = get_local_size(0) / 2; width > 0; width /= 2) {
    if (me < width) scratch[me] += scratch[me + width];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float total = scratch[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}

inline float group_max(float v, local float* scratch) {
  const int me = get_local_id(0);
  scratch[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int width = get_local_size(0) / 2; width > 0; width /= 2) {
    if (me < width) scratch[me] = fmax(scratch[me], scratch[me + width]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float top = scratch[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return top;
}
