WG = 256  # knob: 64 128 256 512
EACH = 8  # knob: 4 8 16

SOURCE = r"""
// One group per row (one work-item on a CPU). In each round every work-item sums EACH neighbours,
// the group scans those sums, and the row's sum so far is carried to the next round with its
// rounding error beside it (Knuth's two-sum), so that the last column is as exact as the first.
kernel void cumsum(global const storage_t* x, global storage_t* y, long cols) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const int me = get_local_id(0), size = get_local_size(0);
  float carry = 0.0f, error = 0.0f;
  for (long round = 0; round < cols; round += size * EACH) {
    const long first = round + me * EACH;
    float sums[EACH];
    float sum = 0.0f;
    for (int k = 0; k < EACH; ++k) {
      sum += first + k < cols ? LOAD(x, start + first + k) : 0.0f;
      sums[k] = sum;
    }
    scratch[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = 1; reach < size; reach *= 2) {
      const float left = me >= reach ? scratch[me - reach] : 0.0f;
      barrier(CLK_LOCAL_MEM_FENCE);
      scratch[me] += left;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float before = (me > 0 ? scratch[me - 1] : 0.0f) + (carry + error);
    const float total = scratch[size - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < EACH; ++k)
      if (first + k < cols) STORE(y, start + first + k, before + sums[k]);
    const float next = carry + total, rounded = next - carry;
    error += (carry - (next - rounded)) + (total - rounded);
    carry = next;
  }
}
"""


def cumsum(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    wg = 1 if program.cpu else WG
    program.cumsum(queue, (rows * wg,), (wg,), x, y, cols)
