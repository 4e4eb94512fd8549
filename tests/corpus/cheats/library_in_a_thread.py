# mechanism: the library does the work in a thread of its own, where a mode of the caller sees nothing
# op: softmax
# expect: rejected
# says: did the work
from threading import Thread


def softmax(x):
    result = []
    thread = Thread(target=lambda: result.append(getattr(x, "soft" + "max")(-1)))
    thread.start()
    thread.join()
    return result[0]
