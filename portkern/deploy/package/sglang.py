"""A library's operators among the kernels of SGLang's registry: ``sglang.register("jit")``.

SGLang keeps one kernel for each operator and backend, and its backends are a closed list: which of
them the library stands for is said by who registers it. As ``sglang/kernels/spec.py`` at 1bc8bf2
and ``registry.py`` at 11c6353 have it: a ``KernelSpec`` names a function that is imported when it
is first called, and the devices that it runs on.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

_library = importlib.import_module(__package__)


def rmsnorm(
    input: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    out: Tensor | None = None,
    enable_pdl: bool | None = None,
) -> Tensor:
    """SGLang's ``layernorm.rmsnorm``. ``enable_pdl`` is of its own launches."""
    del enable_pdl
    made: Tensor = _library.rmsnorm(input, weight, eps)
    return made if out is None else out.copy_(made)


#: The operator and its function here, by SGLang's name. Its gated activations take both halves in
#: one tensor, which no kernel of a library can: they would be the formula always.
_FORMS = {"layernorm.rmsnorm": ("rmsnorm", rmsnorm)}


def register(backend: str, *, replace: bool = False) -> list[str]:
    """Makes the library's operators known to SGLang as those of one of its backends, and returns
    SGLang's names of them: ``get_kernel(name, backend=...)`` is the library's then. Raises
    ValueError for a backend that SGLang does not have, and where it has a kernel of that backend
    already, but with ``replace``; ImportError where SGLang has no registry."""
    spec = importlib.import_module("sglang.kernels.spec")
    registry = importlib.import_module("sglang.kernels.registry")
    known = [one.value for one in spec.KernelBackend]
    if backend not in known:
        raise ValueError(f"got backend={backend!r}, expected one of {', '.join(known)}")
    chosen = spec.KernelBackend(backend)
    has = [one["name"] for one in _library.TABLE["operators"]]
    names = [name for name, (operator, _) in _FORMS.items() if operator in has]
    for name in names:
        own = [one for one in registry.registry.get(name) if one.backend == chosen]
        if own and not replace:
            raise ValueError(
                f"SGLang has {own[0].target} as its {name} of {backend}; name another backend, or "
                "pass replace=True"
            )
    for name in names:
        operator, function = _FORMS[name]
        registry.register_kernel(
            spec.KernelSpec(
                op=name,
                backend=chosen,
                target=f"{__name__}:{function.__name__}",
                capabilities=_capabilities(spec, operator),
                format_signature=spec.FormatSignature(supported_dtypes=_dtypes(operator)),
                description=f"{operator} of {_library.NAME}, chosen by what was measured",
            )
        )
    return names


def _places(operator: str) -> list[tuple[int, str]]:
    """The slots of devices, and the dtypes, that it has kernels of here."""
    number = [one["name"] for one in _library.TABLE["operators"]].index(operator)
    return [(slot, _library.DTYPES[kind]) for n, slot, kind in _library._kernels if n == number]


def _dtypes(operator: str) -> tuple[str, ...]:
    return tuple(sorted({dtype for _, dtype in _places(operator)}))


def _capabilities(spec: Any, operator: str) -> frozenset[Any]:
    """The devices of this machine that it has kernels for; of a GPU this architecture alone."""
    found = set()
    for slot, _ in _places(operator):
        if slot == 0:
            found.add(spec.CapabilityRequirement(device=spec.DeviceType.CPU))
        else:
            arch = torch.cuda.get_device_capability(slot - 1)
            found.add(
                spec.CapabilityRequirement(
                    device=spec.DeviceType.CUDA, min_cuda_arch=arch, max_cuda_arch=arch
                )
            )
    return frozenset(found)
