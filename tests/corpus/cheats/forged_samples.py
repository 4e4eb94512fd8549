# mechanism: takes the connection over and answers the questions for the time itself
# op: relu
# expect: wrong | suspicious | crashed
# says: clock | timed | answered | faster
# torch_ops: allow
import gc
import json
import socket
import sys

TAKEN = []


def relu(x):
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "time":
        frame = frame.f_back
    if not TAKEN and frame and "calls" in frame.f_locals:
        sockets = [one for one in gc.get_objects() if isinstance(one, socket.socket)]
        TAKEN.append(next(one for one in sockets if one.fileno() > 2))
        while "kernel" not in frame.f_locals:
            frame = frame.f_back
        serve(frame.f_locals["self"], TAKEN[0])
    return x.clamp_min(0)


def serve(worker, connection):
    told = times(worker)
    while True:
        connection.sendall(json.dumps({"ok": True, **told}).encode() + b"\n")
        request = json.loads(connection.recv(1 << 20))
        what = request.pop("do")
        told = times(worker) if what == "time" else getattr(worker, what)(**request)


def times(worker):
    """Computes the outputs only now, when they are asked for."""
    worker._returned = [call.inputs and [call.inputs[0].clamp_min(0)] for call in worker._staged]
    return {"samples": [0.01] * (len(worker._staged) - 1)}
