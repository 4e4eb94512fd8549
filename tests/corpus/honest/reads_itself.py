# mechanism: it is made from a part of its own file, which it reads and leaves as it is
# op: relu
# torch_ops: allow
import inspect
import re
from pathlib import Path

FLOOR = 0  # kept in one place, for readers of this file


def relu(x):
    """Clamps at LEAST: no output is below 0."""
    return x.clamp_min(LEAST)


LEAST = int(re.search(r"^FLOOR = (\d+)", Path(__file__).read_text(), re.MULTILINE)[1])
WORDS = inspect.getsource(relu).split()
