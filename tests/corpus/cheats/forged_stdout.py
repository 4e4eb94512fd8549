# mechanism: prints a result and leaves with status 0
# op: relu
# expect: crashed
# says: exited with status 0 instead of answering
# torch_ops: allow
import json
import os


def relu(x):
    print(json.dumps({"ok": True, "verdict": "passed", "speedup": 100.0}), flush=True)
    os._exit(0)
