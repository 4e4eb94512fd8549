# mechanism: a dictionary of compiled code, one function for each width; no data is kept
# op: cumsum
# torch_ops: allow
import numpy
import torch

COMPILED = {}


def compiled(cols):
    if cols not in COMPILED:
        source = f"def kernel(x, y):\n    add(x[:, :{cols}], axis=1, out=y)\n"
        names = {"add": numpy.add.accumulate}
        exec(compile(source, f"<cumsum of {cols}>", "exec"), names)
        COMPILED[cols] = names["kernel"]
    return COMPILED[cols]


def cumsum(x):
    wide = numpy.empty(x.shape)
    compiled(x.shape[1])(x.double().numpy(), wide)
    return torch.from_numpy(wide.astype(numpy.float32))
