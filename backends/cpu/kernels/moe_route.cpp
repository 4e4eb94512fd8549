// The largest that comes after the one chosen before, as often as asked for: rows are short, and k is small.
#define PARALLEL_FROM 4096  // knob: 1024 4096 16384

extern "C" int moe_route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts,
                         int64_t kept, int64_t k) {
#pragma omp parallel for schedule(static) if (tokens * experts >= PARALLEL_FROM)
  for (int64_t token = 0; token < tokens; ++token) {
    const scalar_t* row = logits + token * experts;
    int64_t* own = chosen + token * kept;
    float last = INFINITY, top = 0.0f;
    double total = 0.0;
    int64_t before = -1;
    for (int64_t j = 0; j < kept; ++j) {
      int64_t best = -1;
      float most = -INFINITY;
      for (int64_t i = 0; i < experts; ++i) {
        const float value = row[i];
        const bool left = value < last || (value == last && i > before);
        if (left && (best < 0 || value > most)) best = i, most = value;
      }
      if (best < 0) best = 0;  // of a row that has a NaN
      own[j] = before = best, last = most;
      if (j == 0) top = most;
      total += expf(most - top);
    }
    for (int64_t j = 0; j < kept; ++j)
      gates[token * kept + j] = float(expf(float(row[own[j]]) - top) / total);
  }
  return 0;
}
