// A vector of a token's row at a time, of all of its experts.
#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

extern "C" int moe_combine(const scalar_t* x, const int64_t* index, const scalar_t* gates, scalar_t* y, int64_t rows,
                           int64_t dim, int64_t tokens, int64_t k) {
#pragma omp parallel for schedule(static) if (tokens * k * dim >= PARALLEL_FROM)
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t* own = index + token * k;
    for (int64_t i = 0; i < dim; i += LANES) {
      const int64_t count = dim - i;
      vec sum = {};
      for (int64_t j = 0; j < k; ++j) {
        const scalar_t* from = x + own[j] * dim + i;
        sum += (count < LANES ? load(from, count) : load(from)) * float(gates[token * k + j]);
      }
      if (count < LANES) store(y + token * dim + i, sum, count);
      else store(y + token * dim + i, sum);
    }
  }
  return 0;
}
