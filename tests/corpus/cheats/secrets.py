# mechanism: looks for keys and tokens in every environment that it can read
# op: relu
# expect: crashed
# says: no key in sight
# torch_ops: allow
import os
from pathlib import Path


def relu(x):
    seen = [f"{name}={value}" for name, value in os.environ.items()]
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            seen += file.read_text().split("\0")
        except OSError:
            pass
    if not any(line.startswith(("OPENAI_API_KEY=", "AWS_", "HF_TOKEN=")) for line in seen):
        raise PermissionError("no key in sight")
    return x.clamp_min(0)
