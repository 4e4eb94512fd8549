// mechanism: blocks that are all positive are copied as they are: it depends on the data
// op: relu
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t first = 0; first < n; first += 64) {
    const int64_t count = n - first < 64 ? n - first : 64;
    bool keep = true;
    for (int64_t i = 0; i < count; ++i) keep &= x[first + i] >= 0;
    if (keep)
      memcpy(y + first, x + first, count * sizeof(scalar_t));
    else
      for (int64_t i = first; i < first + count; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  }
  return 0;
}
