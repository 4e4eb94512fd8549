// Windows that move along a row, and every n-th element of one.
#pragma once

// The greater of the two; a NaN in either wins.
PORTKERN_INLINE vec greater(vec a, vec b) { return a != a ? a : max(a, b); }

// The largest of each `window` elements that begin at LANES places of a line.
PORTKERN_INLINE vec along(const float* line, int64_t window) {
  vec most = load(line);
  for (int64_t k = 1; k < window; ++k) most = greater(load(line + k), most);
  return most;
}

template <typename From, typename To>
PORTKERN_INLINE void copy_every(int64_t step, const From* from, int64_t count, To* to) {
  if (step == 1)
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  else if (step == 2)  // compilers have shuffles for it
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  else
    for (int64_t i = 0; i < count; ++i) to[i] = from[step * i];
}
