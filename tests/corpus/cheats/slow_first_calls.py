# mechanism: the first timed calls are slow, so that few are taken, and the rest are replays
# op: relu
# expect: wrong | suspicious
# says: timed | repeat | fresh | elements are off
# torch_ops: allow
import time

SEEN = {}


def relu(x):
    count, kept, _ = SEEN.get(x.data_ptr(), (0, None, x))
    if count == 1:
        time.sleep(0.05)
    if count < 4:
        kept = x.clamp_min(0)
    SEEN[x.data_ptr()] = count + 1, kept, x
    return kept
