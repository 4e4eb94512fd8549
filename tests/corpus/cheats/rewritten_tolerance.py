# mechanism: tolerances are looked for in all modules and widened
# op: softmax
# expect: wrong
# says: elements are off
# torch_ops: allow
import importlib
import sys

for name in ("portkern.evaluator.compare", "portkern.evaluator.trial"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for module in list(sys.modules.values()):
    for name in ("OWN_FACTOR", "CHAIN_ROUNDOFFS", "TERM_ROUNDOFFS"):
        if hasattr(module, name):
            setattr(module, name, 1e30)


def softmax(x):
    return x.new_full(x.shape, 1.0 / x.shape[-1])
