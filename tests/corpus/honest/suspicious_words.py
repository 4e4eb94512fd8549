# mechanism: words that a scan may trip over: _getframe, perf_counter, data_ptr, os._exit
# op: relu
# torch_ops: allow
"""Unlike torch.relu, no gc.get_objects(), sys._getframe() or os._exit() is used: time.perf_counter
and data_ptr are only mentioned, as is pickle."""

import numpy
import torch

subprocess_count = socket_size = eval_width = 0  # names like those of modules


def relu(x):
    reference_cache = numpy.where(x.numpy() < 0, numpy.float32(0), x.numpy())  # not a cache
    return torch.from_numpy(reference_cache)
