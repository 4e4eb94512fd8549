# mechanism: between two calls a thread computes what the next is likely to ask
# op: relu
# expect: wrong | suspicious
# says: timed | repeat | fresh | late | idle
import threading

READY = {}


def relu(x):
    ready = READY.pop(x.data_ptr(), None)
    out = x.clamp_min(0) if ready is None else ready[0]
    prepare = threading.Thread(
        target=lambda: READY.__setitem__(x.data_ptr(), (x.clamp_min(0), x)), daemon=True
    )
    prepare.start()
    return out
