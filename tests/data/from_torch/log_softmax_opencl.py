"""An OpenCL kernel with a work item for each row."""

SOURCE = r"""
kernel void log_softmax(global const storage_t* x, global storage_t* y, long rows, long dim) {
  const long r = get_global_id(0);
  if (r >= rows) return;
  float top = -INFINITY, total = 0.0f;
  for (long c = 0; c < dim; ++c) top = fmax(top, LOAD(x, r * dim + c));
  for (long c = 0; c < dim; ++c) total += exp(LOAD(x, r * dim + c) - top);
  const float logarithm = log(total);
  for (long c = 0; c < dim; ++c) STORE(y, r * dim + c, LOAD(x, r * dim + c) - top - logarithm);
}
"""


def log_softmax(queue, program, x, y, *, batch_size, dim):  # type: ignore[no-untyped-def]
    if batch_size * dim:
        program.log_softmax(queue, (batch_size,), None, x, y, batch_size, dim)
