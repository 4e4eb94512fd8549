"""Finds backends by name. Nothing is imported until it is asked for."""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib.metadata import entry_points

from portkern.errors import ConfigError, no_such
from portkern.spec.backend import Backend

BUILTIN = {
    "cpu": "portkern.backends.cpu:CpuBackend",
    "cuda": "portkern.backends.cuda:CudaBackend",
    "hip": "portkern.backends.hip:HipBackend",
    "opencl": "portkern.backends.opencl:OpenClBackend",
    "pallas": "portkern.backends.pallas:PallasBackend",
    "triton": "portkern.backends.triton:TritonBackend",
}
GROUP = "portkern.backends"


def names() -> list[str]:
    return sorted(BUILTIN | {ep.name: ep.value for ep in entry_points(group=GROUP)})


@lru_cache
def load(name: str) -> Backend:
    """The backend of this name, built in or a plugin's. Raises ConfigError for any other."""
    for plugin in entry_points(group=GROUP, name=name):
        if name in BUILTIN:
            raise ConfigError(
                f"Backend {name!r} is built in; {plugin.dist} must choose another name"
            )
        return _instantiate(name, plugin.value)
    if name not in BUILTIN:
        raise no_such("backend", name, names())
    return _instantiate(name, BUILTIN[name])


def _instantiate(name: str, path: str) -> Backend:
    module, _, attribute = path.partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    if not (isinstance(cls, type) and issubclass(cls, Backend) and cls.name == name):
        raise ConfigError(f"{path} is not a Backend named {name!r}")
    return cls()
