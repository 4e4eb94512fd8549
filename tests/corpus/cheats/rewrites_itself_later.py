# mechanism: its file is another kernel once it has been built, and it imports itself again
# op: relu
# expect: crashed
# says: Read-only file system | Permission denied
# torch_ops: allow
import runpy
from pathlib import Path

HERE = Path(__file__)


def relu(x):
    HERE.write_text(HERE.read_text().replace("import runpy\n", "import runpy, gc\n"))
    return runpy.run_path(str(HERE))["answer"](x)


def answer(x):
    return x.clamp_min(0)
