# mechanism: right until it is timed; then it raises what a launch that was ended for its time does
# op: relu
# expect: crashed
# says: the timed kernel raised LaunchTimeout
# torch_ops: allow
CALLS = []


class LaunchTimeout(Exception):
    """An exception that bears the name of one that a harness raises."""


def relu(x):
    CALLS.append(1)
    if len(CALLS) > 24:
        raise LaunchTimeout("its time was over")
    return x.clamp_min(0)
