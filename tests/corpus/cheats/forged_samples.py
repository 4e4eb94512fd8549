# mechanism: answers the question for the time itself, before the clock has stopped
# op: relu
# expect: wrong | suspicious | crashed
# says: clock | timed | answered | faster
import gc
import json
import socket
import sys


def relu(x):
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "time":
        frame = frame.f_back
    if frame and "repeats" in frame.f_locals:
        told = {"ok": True, "seconds": 1e-6, "samples": [0.01] * frame.f_locals["repeats"]}
        for one in gc.get_objects():
            if isinstance(one, socket.socket) and one.fileno() > 2:
                one.sendall(json.dumps(told).encode() + b"\n")
        raise Leave
    return x.clamp_min(0)


class Leave(BaseException):
    """Ends the worker: the judge has its answer."""
