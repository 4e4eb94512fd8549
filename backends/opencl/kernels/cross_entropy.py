WG = 256  # knob: 64 128 256 512
AHEAD = 4  # knob: 2 4 8
FILL = 128  # knob: 64 128 256

SOURCE = r"""
// One group per row (one work-item on a CPU), read once, AHEAD vectors at a time. Each lane keeps
// its largest logit and the sum of the powers below it, which shrinks when a larger one comes.
kernel void cross_entropy(global const storage_t* logits, global const long* target,
                          global storage_t* loss, long rows, long classes) {
  local float scratch[WG > FILL ? WG : FILL];
  const long row = row_of(), start = min(row, rows - 1) * classes, step = get_local_size(0) * VEC;
  vec_t tops = -FLT_MAX, sums = 0.0f;  // the difference of two infinities would be NaN
  for (long i = get_local_id(0) * VEC; i < classes; i += AHEAD * step) {
    vec_t v[AHEAD], higher = tops, part = 0.0f;
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) v[k] = LOADROW(logits, start, i + k * step, classes, -INFINITY);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) higher = v[k] > higher ? v[k] : higher;
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) part += EXPV(v[k] - higher);
    sums = sums * EXPV(tops - higher) + part;
    tops = higher;
  }
  const float top = group_max(max_of(tops), scratch);
  const float sum = group_sum(sum_of(sums * EXPV(tops - top)), scratch);
  // The difference of the logits first: they may be large where the loss is not.
  if (get_local_id(0) == 0 && row < rows)
    STORE(loss, row, (top - LOAD(logits, start + target[row])) + log(sum));
}

#ifdef PORTKERN_CPU
#define BLOCK 2048

// On a CPU a work-item does a row. Of each block, which stays in the nearest cache, it first finds
// the largest, then it adds the powers. The rest of a row is apart: loops without branches keep
// their constants in registers.
kernel void cross_entropy_cpu(global const storage_t* logits, global const long* target,
                              global storage_t* loss, long classes) {
  const long row = get_global_id(0), start = row * classes, whole = classes / VEC * VEC;
  const vec_t rest = LOADROW(logits, start, whole, classes, -INFINITY);
  vec_t tops = rest > -FLT_MAX ? rest : (vec_t)(-FLT_MAX);
  float top = max_of(tops), sum = sum_of(EXPV(rest - top));
  for (long first = 0; first < whole; first += BLOCK) {
    const long last = first + BLOCK < whole ? first + BLOCK : whole;
    vec_t sums = 0.0f;
    for (long i = first; i < last; i += VEC) {
      const vec_t v = LOADV(logits, start + i);
      tops = v > tops ? v : tops;
    }
    const float higher = max_of(tops);
    for (long i = first; i < last; i += VEC) sums += EXPV(LOADV(logits, start + i) - higher);
    sum = sum * exp(top - higher) + sum_of(sums);
    top = higher;
  }
  // The difference of the logits first: they may be large where the loss is not.
  STORE(loss, row, (top - LOAD(logits, start + target[row])) + log(sum));
}
#endif
"""


def cross_entropy(queue, program, logits, target, loss, *, rows, classes):
    if rows == 0 or classes == 0:
        return
    if program.cpu:
        program.cross_entropy_cpu(queue, (rows,), (1,), logits, target, loss, classes)
        return
    items = int(-(-classes // (AHEAD * program.vec)))  # that have something to read
    sizes = program.row_groups(rows, items, WG, FILL)
    program.cross_entropy(queue, *sizes, logits, target, loss, rows, classes)
