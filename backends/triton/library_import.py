"""Imports a Triton library where there is no GPU, and not all that it imports is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch  # noqa: TID253 - imported by the worker alone

from portkern.spec.target import Target

#: As many modules may be absent; a library that wants more is not what it was.
_MOST_ABSENT = 32


class _Absent(ModuleType):
    """A module that this machine lacks: all names are in it, and none does anything."""

    __path__: list[str]
    __version__ = "0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)  # find_spec() asks for it

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Nothing:
    """A name of an absent module: as a decorator it leaves a function as it is, as a base of a
    class it is none, as a type it is a part of any other and has no objects, and as a number 0."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def _itself(self, *_: object) -> _Nothing:
        return self

    def _no(self, *_: object) -> bool:
        return False

    __or__ = __ror__ = __getitem__ = __add__ = __radd__ = __mul__ = __rmul__ = _itself
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _no
    __instancecheck__ = __subclasscheck__ = _no

    def __index__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __call__(self, *given: object, **named: object) -> object:
        return given[0] if len(given) == 1 and callable(given[0]) and not named else self

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()


def imported(load: Callable[[], ModuleType], own: str) -> ModuleType:
    """The module that ``load`` imports. A module is only taken to be there, with nothing in it,
    if the import fails without it; a missing module of the package called ``own`` is an error."""
    for _ in range(_MOST_ABSENT):
        before = set(sys.modules)
        try:
            return load()
        except metadata.PackageNotFoundError:
            metadata.version = _version_of
        except ModuleNotFoundError as error:
            if not error.name or error.name.partition(".")[0] == own:
                raise
            sys.modules[error.name] = _Absent(error.name)
        _forget(own, before)
    return load()


def _forget(own: str, before: Collection[str]) -> None:
    """Drops the package's modules that a failed import has left: with some of them there, the next
    one would begin in the middle, and modules would meet each other half done."""
    for name in set(sys.modules).difference(before):
        if name == own or name.startswith(f"{own}."):
            del sys.modules[name]


_version = metadata.version


def _version_of(distribution_name: str) -> str:
    """The version of a distribution; that of absent modules for one that is absent."""
    try:
        return _version(distribution_name)
    except metadata.PackageNotFoundError:
        return _Absent.__version__


@contextmanager
def device(target: Target) -> Iterator[None]:
    """Answers what a library asks torch about its GPU as the target would."""
    answers = _answers(target)
    before = {name: getattr(torch.cuda, name) for name in answers}
    try:
        for name, answer in answers.items():
            setattr(torch.cuda, name, answer)
        yield
    finally:
        for name, known in before.items():
            setattr(torch.cuda, name, known)


def _answers(target: Target) -> dict[str, Callable[..., object]]:
    capability = _capability(target)
    properties = SimpleNamespace(
        name=target.title,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=target.multiprocessors or 1,
        warp_size=target.warp or 32,
        gcnArchName=target.arch,
        shared_memory_per_block=target.shared_block_bytes or 0,
        shared_memory_per_block_optin=target.shared_block_bytes or 0,
        max_threads_per_multi_processor=2048,
        total_memory=80 << 30,
    )

    def says(value: object) -> Callable[..., Any]:
        return lambda *_, **__: value

    nothing = says(None)
    return {
        "is_available": says(True),
        "device_count": says(1),
        "current_device": says(0),
        "get_device_name": says(target.title),
        "get_device_capability": says(capability),
        "get_device_properties": says(properties),
        "is_bf16_supported": says(True),
        **dict.fromkeys(("synchronize", "set_device", "empty_cache", "init"), nothing),
    }


def _capability(target: Target) -> tuple[int, int]:
    """The compute capability that torch tells; for AMD the one that ROCm's torch has: gfx942 is
    9.4."""
    if target.vendor == "amd":
        number = target.arch.removeprefix("gfx")
        return int(number[:-2]), int(number[-2])
    digits = "".join(c for c in target.arch if c.isdigit())
    return int(digits[:-1]), int(digits[-1])
