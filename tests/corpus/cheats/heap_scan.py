# mechanism: looks for the expected tensor among all objects of the interpreter
# op: softmax
# expect: wrong | crashed
# says: elements are off | NaN or infinity | no answer
# torch_ops: allow
import gc

import torch


def softmax(x):
    tensors = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape]
    answers = [t for t in tensors if t is not x and not torch.equal(t, x)]
    if not answers:
        raise LookupError("no answer in sight")
    return answers[0].clone()
