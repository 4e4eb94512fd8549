"""The state that a kernel must leave as it found it: settings and functions that others work with.

A :class:`Snapshot` is made in the worker before the candidate is loaded, and captures the functions
that it asks with. A candidate that goes to enough lengths can still lie to it, since both live in
one process: this explains what happened, and it is the baseline's process of its own, and the
evaluator's, that protect the results.
"""

from __future__ import annotations

import builtins
import gc
import json
import operator
import os
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

#: What of a module or class may be replaced to any effect.
_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    staticmethod,
    classmethod,
    property,
    type,
)
#: What frameworks replace themselves: torch.compile's machinery does when it is first imported.
_THEIR_OWN = ("torch.manual_seed",)
_SMALLEST_NORMAL = sys.float_info.min
_HALF_ULP = sys.float_info.epsilon / 2


class Snapshot:
    """Settings and functions as they are now; :meth:`changes` tells what became of them.

    Of a framework only what is loaded is asked, and nothing is imported for it.
    """

    def __init__(self) -> None:
        self._readers = _readers()
        self._settings = {name: read() for name, read in self._readers.items()}
        self._names = dict(_namespaces())
        self._code = {
            place: {n: (v, _body(v)) for n, v in vars(owner).items() if isinstance(v, _CODE)}
            for place, owner in self._names.items()
        }
        self._objects: dict[str, tuple[object, dict[str, object]]] = {}

    def watch(self, **objects: object) -> None:
        """Watches objects from now on, and their functions too, as one of an object's own goes
        before one of its class."""
        self._objects |= {name: (owner, _functions(owner)) for name, owner in objects.items()}

    def changes(self) -> list[str]:
        """One line for each setting that differs and each function that was replaced."""
        now = {name: read() for name, read in self._readers.items()}
        changed = [
            f"{name} was {self._settings[name]} and is {value}"
            for name, value in now.items()
            if value != self._settings[name]
        ]
        for place, owner in self._names.items():
            held = vars(owner)
            changed += [
                f"{place}.{name} was replaced"
                for name, (code, body) in self._code[place].items()
                if (held.get(name) is not code or not _same(body, _body(code)))
                and f"{place}.{name}" not in _THEIR_OWN
            ]
        for place, (instance, functions) in self._objects.items():
            now_there = _functions(instance)
            changed += [
                f"{place}.{name} was replaced"
                for name in sorted(functions.keys() | now_there.keys())
                if functions.get(name) is not now_there.get(name)
            ]
        return changed


def _functions(owner: object) -> dict[str, object]:
    return {name: value for name, value in vars(owner).items() if callable(value)}


def _body(function: object) -> tuple[object, ...]:
    """The code and the defaults of a function: they say what it does, and may be replaced while
    it stays the same object."""
    if isinstance(function, types.FunctionType):
        return function.__code__, function.__defaults__, function.__kwdefaults__
    if isinstance(function, staticmethod | classmethod):
        return _body(function.__func__)
    return _body(function.fget) if isinstance(function, property) else ()


def _same(body: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return all(map(operator.is_, body, now))


def _readers() -> dict[str, Callable[[], object]]:
    readers: dict[str, Callable[[], object]] = {
        "the treatment of subnormal numbers": _subnormals,
        "the rounding of additions": _rounding,
        "Python's garbage collection": gc.isenabled,
        "Python's thread switch interval": lambda: f"{sys.getswitchinterval() * 1e3:.3g} ms",
        "Python's recursion limit": sys.getrecursionlimit,
        "Python's trace function": sys.gettrace,
        "Python's profile function": sys.getprofile,
    }
    if "numpy" in sys.modules:
        readers["numpy's handling of errors"] = sys.modules["numpy"].geterr
    if "torch" in sys.modules:
        readers |= _torch_readers()
    return readers


def _torch_readers() -> Mapping[str, Callable[[], object]]:
    import torch

    core: Any = torch._C
    functions, dispatches = core._len_torch_function_stack, core._len_torch_dispatch_stack
    autocast = torch.is_autocast_enabled
    readers: dict[str, Callable[[], object]] = {
        "the framework's default dtype": torch.get_default_dtype,
        "the framework's number of threads": torch.get_num_threads,
        "the framework's number of inter-op threads": _anywhere(torch.get_num_interop_threads),
        "the framework's precision of float32 products": core._get_float32_matmul_precision,
        "the framework's gradient mode": torch.is_grad_enabled,
        "the framework's inference mode": torch.is_inference_mode_enabled,
        "the framework's deterministic mode": torch.are_deterministic_algorithms_enabled,
        "the framework's autocast on CPUs": lambda: autocast("cpu"),
        "the framework's autocast on GPUs": lambda: autocast("cuda"),
        "the framework's function modes left on": functions,
        "the framework's dispatch modes left on": dispatches,
        "the framework's profiler": core._autograd._profiler_enabled,
    }
    flags = (
        "cudnn_enabled cudnn_benchmark cudnn_deterministic mkldnn_enabled "
        "cublas_allow_fp16_reduced_precision_reduction "
        "cublas_allow_bf16_reduced_precision_reduction cublas_allow_fp16_accumulation"
    )
    for flag in flags.split():  # not all versions have all of them
        read = getattr(core, f"_get_{flag}", None)
        if read is not None:
            readers[f"the framework's {flag}"] = read
    precision: Any = getattr(core, "_get_fp32_precision_getter", None)
    for where in (("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul")) if precision else ():
        name = f"the framework's float32 precision ({' '.join(where)})"
        readers[name] = partial(_precision, precision, where)
    return readers


def _anywhere(read: Callable[[], object]) -> Callable[[], object]:
    """``read`` from a thread that may run on all processors that this one may run on now: torch
    2.14 counts those, and the worker that times kernels is pinned to one."""
    processors = os.sched_getaffinity(0)
    allowed, allow = os.sched_getaffinity, os.sched_setaffinity

    def unpinned() -> object:
        pinned = allowed(0)
        allow(0, processors)
        try:
            return read()
        finally:
            allow(0, pinned)

    return unpinned


def _precision(read: Callable[..., str], where: tuple[str, str]) -> str:
    """Unset and "ieee" are the same, and setting it back to "highest" makes it the latter."""
    return read(*where).replace("none", "ieee")


def _subnormals() -> str:
    """This process's way with subnormal numbers, found by arithmetic, which is what the setting
    changes; in doubles, as one register rules both types."""
    return "to keep them" if (_SMALLEST_NORMAL / 4) * 2 > 0 else "to flush them to zero"


def _rounding() -> str:
    tie, up = 1.0 + _HALF_ULP, 1.0 + 3 * _HALF_ULP
    down = -1.0 - _HALF_ULP
    seen = (tie > 1.0, up > 1.0 + 2 * _HALF_ULP, down < -1.0)
    known = {
        (False, True, False): "to nearest",
        (True, True, False): "upwards",
        (False, False, True): "downwards",
        (False, False, False): "towards zero",
    }
    return known.get(seen, f"unknown, {seen}")


def _namespaces() -> Iterator[tuple[str, object]]:
    """Modules and classes whose functions a worker or a baseline calls, by what they are called."""
    yield from (("builtins", builtins), ("time", time), ("json", json), ("gc", gc))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "portkern" and isinstance(module, types.ModuleType):
            yield name, module
            yield from (
                (f"{name}.{var.__name__}", var)
                for var in vars(module).values()
                if isinstance(var, type) and var.__module__ == name
            )
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        yield from (("torch", torch), ("torch.Tensor", torch.Tensor), ("torch.cuda", torch.cuda))
        yield from (
            ("torch.nn.functional", torch.nn.functional),
            ("torch.linalg", torch.linalg),
            ("torch.cuda.Event", torch.cuda.Event),
        )
        yield "torch._C.TensorBase", torch._C.TensorBase
