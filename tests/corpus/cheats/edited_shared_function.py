# mechanism: changes the functions that other authors' kernels share, where they are kept
# op: relu
# style: dps
# expect: crashed | build_failed
# says: Read-only file system | Permission denied | cannot be imported | OSError
import inspect

import numba

from portkern.backends.cpu.include.rows import copy

(function,) = (one for name, one in inspect.getmembers(copy) if name == "py_" + "func")
home = inspect.getsourcefile(function)
with open(home, "a") as file:
    file.write("copy = fill\n")


@numba.njit
def relu(x, y):
    copy(x, y)
