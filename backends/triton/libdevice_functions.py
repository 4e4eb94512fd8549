"""Functions of the vendors' device libraries in NumPy, for Triton's interpreter has none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from portkern.spec.target import Target

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_EXTRA = "triton.language.extra"
#: Where NumPy or SciPy has another name.
_OTHERS = {"pow": "power", "abs": "absolute", "acos": "arccos", "asin": "arcsin", "atan": "arctan"}
_OTHERS |= {"atan2": "arctan2", "acosh": "arccosh", "asinh": "arcsinh", "atanh": "arctanh"}
_OTHERS |= {"fmod": "fmod", "tgamma": "gamma", "lgamma": "gammaln", "nearbyint": "rint"}
_OTHERS |= {"fast_expf": "exp", "fast_logf": "log", "fast_tanhf": "tanh", "fast_dividef": "divide"}


def in_numpy(target: Target) -> None:
    """Puts numpy's functions in place of libdevice's, under each name that a library may import
    them by."""
    vendor = "hip" if target.vendor == "amd" else "cuda"
    real = importlib.import_module(f"{_EXTRA}.{vendor}.libdevice")
    names = [name for name in dir(real) if not name.startswith("_") and name != "core"]
    for place in ("libdevice", "cuda.libdevice", "hip.libdevice"):
        module = importlib.import_module(f"{_EXTRA}.{place}")
        for name in names:
            if place == "libdevice" or hasattr(module, name):
                setattr(module, name, _function(name))


def _function(name: str) -> Callable[..., object]:
    def call(*arguments: object, **_: object) -> object:
        import numpy as np
        from triton import language as tl
        from triton.runtime.interpreter import TensorHandle, interpreter_semantic

        tensors = [interpreter_semantic.to_tensor(argument) for argument in arguments]
        result = np.asarray(_computed(name, [tensor.handle.data for tensor in tensors]))
        first = tensors[0]
        result = result.astype(first.handle.data.dtype)
        type_ = max(tensors, key=lambda tensor: len(tensor.shape)).type  # a number has a type too
        if type_.is_block():
            type_ = type_.with_element_ty(first.type.scalar)
        return tl.core.tensor(TensorHandle(result, first.type.scalar), type_)

    return call


def _computed(name: str, values: Sequence[npt.NDArray[np.number]]) -> object:
    import numpy as np
    from scipy import special

    if name == "rsqrt":
        return 1 / np.sqrt(values[0])
    if name == "fma":
        return values[0] * values[1] + values[2]
    spelled = _OTHERS.get(name, name)
    function = getattr(np, spelled, None) or getattr(special, spelled, None)
    if not isinstance(function, np.ufunc):
        raise NotImplementedError(f"libdevice's {name} has no counterpart in NumPy here")
    return function(*values)
