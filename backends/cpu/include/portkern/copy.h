#pragma once

// n elements from x to y. `large`: past the caches, where y is whole vectors; where rows are none, the
// lines that two of them share would be written in parts, which takes longer than it spares.
PORTKERN_INLINE void copy(const scalar_t* x, scalar_t* y, int64_t n, bool large) {
  const int64_t each = sizeof(vec) / sizeof(scalar_t);
  if (!large || n % each != 0 || uintptr_t(y) % sizeof(vec) != 0) {
    memcpy(y, x, size_t(n) * sizeof(scalar_t));
    return;
  }
  for (int64_t i = 0; i < n; i += each)
    put(reinterpret_cast<float*>(y + i), load(reinterpret_cast<const float*>(x + i)));
}
