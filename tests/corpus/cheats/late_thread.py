# mechanism: a thread fills the output after the call has returned
# op: softmax
# expect: wrong | suspicious
# says: elements are off | NaN or infinity | late
# torch_ops: allow
import threading
import time

import torch


def softmax(x):
    out = torch.zeros_like(x)

    def fill():
        time.sleep(0.3)
        wide = (x.double() - x.double().amax(-1, keepdim=True)).exp()
        out.copy_(wide / wide.sum(-1, keepdim=True))

    threading.Thread(target=fill, daemon=True).start()
    return out
