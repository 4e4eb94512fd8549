"""Traces a kernel that is interpreted as it would be on its device.

A kernel that asks gets the device's answer: ``interpret`` is False, the branches of
``platform_dependent`` are the device's, and so are ``jax.default_backend()`` and ``jax.devices()``.
What is interpreted is then the program that the device would run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from portkern.spec.target import Target, TpuLimits

from .lowering import DEVICE_KINDS

#: What JAX calls a vendor's platform where it lowers, and its backend.
_PLATFORMS = {"nvidia": ("cuda", "gpu"), "amd": ("rocm", "gpu"), "google": ("tpu", "tpu")}


@dataclass(frozen=True)
class _Described:
    """A device that is not here, by what kernels ask of one; all else is the real one's."""

    real: Any
    platform: str
    device_kind: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def as_on_device(target: Target, interpret: Any) -> Iterator[None]:
    """``interpret`` is what Mosaic's interpreters are asked with, below what a kernel sees; None
    where the CPU's lowering of ``pallas_call`` is replaced."""
    import jax
    from jax._src import config
    from jax._src.lax.control_flow import platform_index_p

    platform, backend = _PLATFORMS[target.vendor]
    with ExitStack() as stack:
        for name in ("devices", "local_devices"):
            answer = partial(_devices, getattr(jax, name), backend, _kind(target))
            stack.enter_context(patch.object(jax, name, answer))
        stack.enter_context(patch.object(jax, "default_backend", lambda: backend))
        stack.enter_context(patch.object(platform_index_p, "bind", partial(_branch, platform)))
        if interpret is not None:
            setting = config.pallas_tpu_interpret_mode_context_manager
            stack.callback(setting.set_local, setting.swap_local(interpret))
        yield


def _kind(target: Target) -> str:
    if isinstance(target.limits, TpuLimits):
        return target.limits.device_kind
    return DEVICE_KINDS.get(target.arch, target.arch)


def _devices(
    real: Callable[..., list[Any]], backend: str, kind: str, *args: Any, **named: Any
) -> list[Any]:
    """The devices that there are, as the target's; the CPU's where they are asked for."""
    if "cpu" in (*args, *named.values()):
        return real(*args, **named)
    return [_Described(device, backend, kind) for device in real()]


def _branch(platform: str, *, platforms: tuple[tuple[str, ...] | None, ...]) -> int:
    """The branch of ``platform_dependent`` that is taken on a platform. Within a kernel a TPU's is
    called Mosaic."""
    from jax._src.pallas import core

    inside = core._pallas_tracing_env.grid_context is not None
    wanted = "mosaic" if inside and platform == "tpu" else platform
    for number, names in enumerate(platforms):
        if names is None or wanted in names:
            return number
    raise NotImplementedError(f"platform_dependent has no branch for {wanted}")
