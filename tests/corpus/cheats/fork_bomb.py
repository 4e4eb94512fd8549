# mechanism: forks until the machine has no process left
# op: relu
# expect: crashed
# says: BlockingIOError
# torch_ops: allow
import os
import time


def relu(x):
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
