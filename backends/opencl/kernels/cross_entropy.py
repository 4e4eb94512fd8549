WG = 256  # knob: 64 128 256 512
AHEAD = 4  # knob: 2 4 8

SOURCE = r"""
// One group per row (one work-item on a CPU), read once, AHEAD vectors at a time. Each lane keeps
// its largest logit and the sum of the powers below it, which shrinks when a larger one comes.
kernel void cross_entropy(global const storage_t* logits, global const long* target,
                          global storage_t* loss, long classes) {
  local float scratch[WG];
  const long row = get_group_id(0), start = row * classes, step = get_local_size(0) * VEC;
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
  if (get_local_id(0) == 0)
    STORE(loss, row, (top - LOAD(logits, start + target[row])) + log(sum));
}
"""


def cross_entropy(queue, program, logits, target, loss, *, rows, classes):
    if rows == 0 or classes == 0:
        return
    items = int(-(-classes // (AHEAD * program.vec)))  # that have something to read
    wg = 1 if program.cpu else min(WG, 1 << (items - 1).bit_length())
    program.cross_entropy(queue, (rows * wg,), (wg,), logits, target, loss, classes)
