// mechanism: intrinsics and a prefetch, with a scalar tail
// op: relu
#if defined(__SSE2__)
#include <immintrin.h>
#endif

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = 0;
#if defined(__SSE2__) && defined(PORTKERN_FLOAT32)
  const __m128 zero = _mm_setzero_ps();
  for (; i + 4 <= n; i += 4) {
    _mm_prefetch((const char*)(x + i) + 512, _MM_HINT_T0);
    _mm_storeu_ps(y + i, _mm_max_ps(zero, _mm_loadu_ps(x + i)));
  }
#endif
  for (; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
