#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

// log(sum of e^x) - x[target] of each row.
static float loss_of(const Powers& row, float wanted) {
  return logf(float(row.sum)) + (row.top - wanted);
}

static void narrow_rows(const scalar_t* x, const int64_t* target, scalar_t* loss, int64_t rows,
                        int64_t classes, int64_t left) {
  vec v[LANES], sum = {};
  load_columns(x, classes, left, v);
  vec top = splat(-INFINITY);
  for (int64_t j = 0; j < classes; ++j) top = max(v[j], top);
  const vec shift = top == splat(-INFINITY) ? vec{} : top;
  for (int64_t j = 0; j < classes; ++j) sum += exp(v[j] - shift);
  for (int64_t r = 0; r < rows; ++r) {
    Powers row;
    row.top = top[r], row.sum = sum[r];
    loss[r] = loss_of(row, x[r * classes + target[r]]);
  }
}

template <int V>
static float short_row(const scalar_t* x, int64_t classes, int64_t target) {
  vec v[V], top = splat(-INFINITY), sum = {};
  load_row<V>(x, classes, -INFINITY, v);
  for (int i = 0; i < V; ++i) top = max(v[i], top);
  Powers row;
  row.top = reduce_max(top);
  const float shift = finite_or_zero(row.top);
  for (int i = 0; i < V; ++i) sum += exp(v[i] - shift);
  row.sum = reduce_add(sum);
  return loss_of(row, x[target]);
}

static int shared_rows(const scalar_t* x, const int64_t* target, scalar_t* loss, int64_t rows,
                       const Parts& parts) {
  const int64_t jobs = rows * parts.count;
  Scratch<Powers> known(jobs);
  if (!known.data) return 1;
#pragma omp parallel for schedule(static)
  for (int64_t job = 0; job < jobs; ++job) {
    known.data[job] = Powers();
    known.data[job].take(x + parts.start(job), parts.size(job));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const Powers all = parts.total(known.data, row * parts.count);
    loss[row] = loss_of(all, x[row * parts.cols + target[row]]);
  }
  return 0;
}

extern "C" int cross_entropy(const scalar_t* logits, const int64_t* target, scalar_t* loss,
                             int64_t rows, int64_t classes) {
  const bool parallel = rows * classes >= PARALLEL_FROM;
  if (are_narrow(classes)) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(logits + row * classes, target + row, loss + row,
                  rows - row < LANES ? rows - row : LANES, classes, (rows - row) * classes);
    return 0;
  }
  const Parts parts(rows, classes);
  if (parts.count > 1) return shared_rows(logits, target, loss, rows, parts);
  const bool few = in_registers(classes, [=](auto vectors) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row)
      loss[row] = short_row<vectors.count>(logits + row * classes, classes, target[row]);
  });
  if (few) return 0;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row) {
    Powers all;
    all.take(logits + row * classes, classes);
    loss[row] = loss_of(all, logits[row * classes + target[row]]);
  }
  return 0;
}
