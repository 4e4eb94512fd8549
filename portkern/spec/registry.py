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
#: Where what backends import stood before portkern 0.2, and stands now.
MOVED = {
    "abi": "spec.abi",
    "backend": "spec.backend",
    "candidate": "spec.candidate",
    "compilers": "toolchain.compilers",
    "device": "toolchain.torch_device",
    "host": "toolchain.host",
    "native": "toolchain.native_library",
    "occupancy": "spec.occupancy",
    "op": "spec.op",
    "target": "spec.target",
    "toolchain": "toolchain.run_tool",
}


def names() -> list[str]:
    """Returns the names of this process's backends; a later plugin is the next process's."""
    return list(_names())


@lru_cache
def _names() -> tuple[str, ...]:
    """Looks through all that is installed, which takes a hundredth of a second and more."""
    return tuple(sorted(BUILTIN | {ep.name: ep.value for ep in entry_points(group=GROUP)}))


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
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        moved = _moved(error)
        if not moved:
            raise
        raise ConfigError(f"Backend {name!r} was written for portkern 0.1: {moved}") from error
    if not (isinstance(cls, type) and issubclass(cls, Backend) and cls.name == name):
        raise ConfigError(f"{path} is not a Backend named {name!r}")
    return cls()


def _moved(error: ImportError) -> str:
    """A hint at the module to import instead of one that stood elsewhere; '' when it is another
    error."""
    name = (error.name or "").removeprefix("portkern.")
    if error.name == "portkern" or not name:  # ``from portkern import host``
        name = next((old for old in MOVED if f"import name {old!r}" in str(error)), "")
    return f"portkern.{name} is portkern.{MOVED[name]} now; import that" if name in MOVED else ""
