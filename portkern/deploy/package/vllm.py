"""A library's operators as providers of vLLM's IR: ``vllm.register()``, in a plugin of the group
``vllm.general_plugins`` or a platform's ``import_ir_kernels``.

vLLM chooses when it lowers a graph, by arguments without values: here by their dtypes. What then
runs at which sizes the operator decides in each call. As ``vllm/ir/op.py`` has it at fafeb7c: a
provider's function has the schema of the native one, and ``supports_args`` as many parameters.
"""

from __future__ import annotations

import importlib

from torch import Tensor

_library = importlib.import_module(__package__)
PROVIDER = f"portkern_{_library.NAME}"


def _rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    assert weight is not None and variance_size is None, "supports_args was not asked"
    made: Tensor = _library.rmsnorm(x, weight, epsilon)
    return made


def _has_rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    del epsilon
    if weight is None or variance_size is not None or not x.dim():
        return False
    return weight.dtype == x.dtype and _has("rmsnorm", x)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    assert approximate == "none", "supports_args was not asked"
    made: Tensor = _library.gelu(x)
    return made


def _has_gelu(x: Tensor, approximate: str = "none") -> bool:
    return approximate == "none" and _has("gelu", x)


def _has(operator: str, x: Tensor) -> bool:
    """Whether it has a kernel of this dtype, for the device."""
    known = x.device.type in ("cpu", "cuda")
    return known and bool(_library.has(operator, x.device, x.dtype))


#: The operator, its function and the question for it, by vLLM's name.
_FORMS = {
    "rms_norm": ("rmsnorm", _rms_norm, _has_rms_norm),
    "gelu": ("gelu", _gelu, _has_gelu),
}


def register() -> list[str]:
    """Makes the library a provider of the operators that both have, and returns vLLM's names of
    them; where it stands in the order is vLLM's ``--ir-op-priority``. Raises ImportError where vLLM
    has no IR."""
    ops = importlib.import_module("vllm.ir").ops
    has = [one["name"] for one in _library.TABLE["operators"]]
    names = [n for n, (operator, _, _) in _FORMS.items() if operator in has and hasattr(ops, n)]
    for name in names:
        _, function, question = _FORMS[name]
        getattr(ops, name).register_impl(PROVIDER, supports_args=question)(function)
    return names
