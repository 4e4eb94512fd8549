# mechanism: never returns
# op: relu
# run_s: 1
# expect: timed_out
# says: longer than 1 s
# torch_ops: allow
def relu(x):
    while True:
        pass
