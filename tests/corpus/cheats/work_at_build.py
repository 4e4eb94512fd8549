# mechanism: what it does when it is built ends the builder as if all were well
# op: relu
# expect: build_failed
# says: exited with status 0 instead of answering
# torch_ops: allow
import os

os._exit(0)
