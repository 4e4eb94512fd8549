"""Lets code that is written for a GPU run on tensors of the host: they say that they lie on one.

Kernels for PyTorch ask their inputs (``assert x.is_cuda``) and make tensors on ``"cuda"``. Used in
emulators alone, where nothing is timed; only what a candidate itself calls sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any


@contextmanager
def passing_for_gpu() -> Iterator[None]:
    """Answers and arguments of torch's functions are changed; tensors stay what they are."""
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor  # to the type checker its properties are their values
    answers: Mapping[object, object] = {
        tensor.is_cuda.__get__: True,
        tensor.device.__get__: torch.device("cuda", 0),
        tensor.get_device: 0,
    }
    stays = (torch.Tensor.cuda,)

    class PassingForGpu(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., object],
            types: Sequence[type],
            args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            if func in answers:
                return answers[func]
            if func in stays:
                return args[0]
            named = {name: on_host(value) for name, value in (kwargs or {}).items()}
            return func(*map(on_host, args), **named)

    def on_host(value: object) -> object:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return "cpu"
        return value

    mode = PassingForGpu()

    def with_answers(function: Callable[..., object]) -> Callable[..., object]:
        """Wraps what PyTorch calls while it does an operation itself, where no mode is asked."""

        @wraps(function)
        def called(*args: object, **kwargs: object) -> object:
            if torch._C._len_torch_function_stack():
                return function(*args, **kwargs)
            with mode:
                return function(*args, **kwargs)

        return called

    of_backward: Any = torch.autograd.function.BackwardCFunction
    of_library: Any = torch.library.Library
    apply, impl = of_backward.apply, of_library.impl

    def implement(self: object, name: object, function: Any, *args: object, **kw: object) -> object:
        known = with_answers(function) if isinstance(function, FunctionType) else function
        return impl(self, name, known, *args, **kw)

    of_backward.apply, of_library.impl = with_answers(apply), implement
    try:
        with mode:
            yield
    finally:
        of_backward.apply, of_library.impl = apply, impl
