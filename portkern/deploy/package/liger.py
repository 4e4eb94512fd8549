"""A library's operators among the implementations of Liger's registry: ``liger.register()``.

Liger takes the usable implementation of least rank. A call that no kernel of the library is known
to win goes on to the next one; where there is none that runs, the operator's own formula answers.
As liger-kernel 0.8.5 has it, in ``backends/registry.py`` and ``functional.py``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_library = importlib.import_module(__package__)
#: How it is told apart there, as ``impl=`` and ``LIGER_KERNEL_IMPL`` name it.
IMPLEMENTATION = f"portkern-{_library.NAME}"

#: What an operator takes of a call of Liger's; None for a call that is another function's.
_Arguments = Callable[..., tuple[Any, ...] | None]


def _rms_norm(
    x: Any,
    weight: Any,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = False,
    row_mode: Any = None,
) -> tuple[Any, ...] | None:
    del in_place, row_mode  # of its own backward pass and launch
    return None if weight is None or offset or casting_mode == "none" else (x, weight, eps)


def _layer_norm(x: Any, weight: Any, bias: Any = None, eps: float = 1e-6) -> Any:
    return None if bias is None else (x, weight, bias, eps)


def _softmax(x: Any) -> tuple[Any, ...] | None:
    return (x,) if x.dim() else None


def _swiglu(a: Any, b: Any, gate_multiplier: float = 1.0, down_multiplier: float = 1.0) -> Any:
    return (a, b) if gate_multiplier == down_multiplier == 1.0 else None


#: The operator and its arguments, by Liger's name.
_FORMS: dict[str, tuple[str, _Arguments]] = {
    "rms_norm": ("rmsnorm", _rms_norm),
    "layer_norm": ("layernorm", _layer_norm),
    "softmax": ("softmax", _softmax),
    "swiglu": ("silu_mul", _swiglu),
}


def register(rank: int = 10) -> list[str]:
    """Makes the library's operators known to Liger, and returns Liger's names of them. ``rank``:
    less than 50 comes before Liger's own. Raises ImportError where Liger is not installed."""
    importlib.import_module("liger_kernel.functional")  # says where Liger's own are
    backends = importlib.import_module("liger_kernel.backends")
    has = [one["name"] for one in _library.TABLE["operators"]]
    names = [name for name, (operator, _) in _FORMS.items() if operator in has]
    for name in names:
        backends.register_impl(name, impl_name=IMPLEMENTATION, preference_rank=rank)(
            _implementation(name)
        )
    return names


def _implementation(name: str) -> Callable[..., Any]:
    operator, arguments = _FORMS[name]
    called = getattr(_library, operator)

    def run(*given: Any, mode: str | None = None, **named: Any) -> Any:
        taken = arguments(*given, **named)
        if taken is not None and _library.takes(operator, *taken):
            return called(*taken)
        other = _other(name, given)
        if other is not None:
            return other.call(*given, **named, **({"mode": mode} if mode else {}))
        if taken is None:
            raise NotImplementedError(
                f"{IMPLEMENTATION} has no {name} of these arguments, and Liger has no other "
                "implementation that runs here"
            )
        return called(*taken)

    return run


def _other(name: str, given: tuple[Any, ...]) -> Any:
    """The best of the other implementations that run where the tensors are."""
    backends = importlib.import_module("liger_kernel.backends")
    registry = importlib.import_module("liger_kernel.backends.registry")
    device = given[0].device
    if device.type == "cpu":  # all of Liger's own are for accelerators
        return None
    names = [one for one in backends.available_impls(name, device) if one != IMPLEMENTATION]
    return registry.get_registered(name, names[0]) if names else None
