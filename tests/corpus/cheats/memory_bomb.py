# mechanism: allocates until the machine has no memory left
# op: relu
# expect: crashed
# says: MemoryError | SIGKILL
def relu(x):
    held = []
    while True:
        held.append(bytearray(1 << 28))
