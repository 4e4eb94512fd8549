"""Imports a Triton library where there is no GPU, and not all that it imports is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Nothing:
    """A name of an absent module: as a decorator it leaves a function as it is, and as a base of a
    class it is none."""

    def __init__(self, *_: object, **__: object) -> None: ...

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
        try:
            return load()
        except ModuleNotFoundError as error:
            if not error.name or error.name.partition(".")[0] == own:
                raise
            sys.modules[error.name] = _Absent(error.name)
    return load()


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
    """As ROCm's torch has it for AMD's: gfx942 is 9.4."""
    if target.vendor == "amd":
        number = target.arch.removeprefix("gfx")
        return int(number[:-2]), int(number[-2])
    digits = "".join(c for c in target.arch if c.isdigit())
    return int(digits[:-1]), int(digits[-1])
