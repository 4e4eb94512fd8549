# mechanism: an object that is equal to anything
# op: relu
# expect: crashed | wrong
# says: type Agreeable
# torch_ops: allow
class Agreeable:
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0

    def __getattr__(self, name):
        return lambda *args, **kwargs: self


def relu(x):
    return Agreeable()
