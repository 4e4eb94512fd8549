"""Runs a program whose kernels are executed as they are compiled for an AMD GPU.

Called as ``python -m portkern.worker.object_program OPTIONS LIBRARY ARGS``, where OPTIONS is JSON:
``object`` (the code object), ``target``, ``checks``, ``record_bytes``, ``limit_s`` and ``runtime``.
The library is the program's host code, which a process of its own opens; it calls back for each
launch, for the kernel that its own place belongs to. This process executes what that asks for
(:mod:`portkern.worker.object_device`): no code of the program runs in it, and nobody else has its
handles 3 and 4, which take findings and the recording.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from portkern.isa.executor import ObjectProgram
from portkern.sandbox.jail import system
from portkern.sandbox.message import FormError
from portkern.spec import target as targets
from portkern.spec.foreign_text import json_value
from portkern.toolchain import elf
from portkern.worker.object_device import FAILED, ObjectMemoryDevice, plain_name
from portkern.worker.object_link import OF_DEVICE, Answer, Asked, Channel, LinkedMemory, Variables
from portkern.worker.object_memory import Arena
from portkern.worker.object_recording import Recording

#: What the process that starts this one gives it beside the standard handles.
_FINDINGS, _RECORD = 3, 4
#: The share of the limit that the device may take: a call that has let it wait so long will not end
#: in time; the rest is for our own start.
_PART_OF_LIMIT = 0.75


class _Passed(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_void_p),
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic", ctypes.c_size_t),
        ("count", ctypes.c_size_t),
        ("arguments", ctypes.POINTER(_Passed)),
        ("refused", ctypes.c_int),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("number", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("changed", ctypes.c_int),
    )


_EXECUTOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))


@dataclass
class _Symbols:
    """The functions of a library that is open, in order, and its variables, by their addresses."""

    base: int
    starts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, library: ctypes.CDLL) -> _Symbols:
        from elftools.elf.sections import SymbolTableSection

        # The loader's handle is its link map, which begins with the address.
        found = cls(ctypes.c_size_t.from_address(library._handle).value)
        functions: dict[int, str] = {}
        with elf.opened(path) as file:
            for table in file.iter_sections():
                if not isinstance(table, SymbolTableSection):
                    continue
                for entry in table.iter_symbols():
                    kind, value = entry["st_info"]["type"], entry["st_value"]
                    if kind == "STT_FUNC" and value:
                        functions[value] = entry.name
                    elif kind == "STT_OBJECT" and value:
                        found.variables[entry.name] = (found.base + value, entry["st_size"])
        found.starts = sorted(functions)
        found.names = [functions[start] for start in found.starts]
        return found

    def function(self, code: int) -> str:
        at = bisect.bisect_right(self.starts, code - self.base - 1) - 1
        return self.names[at] if at >= 0 else ""


class HostCode:
    """A program's library, opened in this process, which asks the device for its launches.
    ``variables`` are the device's, by name, with their sizes."""

    def __init__(self, library: Path, channel: Channel, variables: Mapping[str, int]) -> None:
        self._channel = channel
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._library.simt_buffers.restype = ctypes.c_size_t
        self._symbols = _Symbols.of(library, self._library)
        self._executor = _EXECUTOR(self._launch)
        self._library.simt_execute_objects(self._executor)
        #: What the device has, of variables by their addresses and of buffers by their numbers.
        self._of_variables: dict[int, bytes] = {}
        self._of_buffers: dict[int, bytes] = {}
        places = []
        for name, (address, size) in self._symbols.variables.items():
            if size and variables.get(name) == size:
                places.append((name, address, size))
                self._of_variables[address] = ctypes.string_at(address, size)
        channel.send(Variables(tuple(places)), list(self._of_variables.values()))

    def call_main(self, name: str, arguments: Sequence[str]) -> NoReturn:
        """The process ends as the program does."""
        given = [name.encode(), *(argument.encode() for argument in arguments)]
        argv = (ctypes.c_char_p * (len(given) + 1))(*given, None)
        code = self._library.main(len(given), argv)
        sys.stdout.flush()
        self._library.exit(code)
        os._exit(1)

    def _launch(self, given: ctypes._Pointer[_Launch]) -> int:
        try:
            return self._ask(given.contents)
        except Exception as error:  # noqa: BLE001 - through C++, nobody would see it
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return FAILED

    def _ask(self, launch: _Launch) -> int:
        passed = [launch.arguments[k] for k in range(launch.count)]
        values = [ctypes.string_at(one.at, one.bytes) for one in passed]
        buffers = () if launch.refused else self._buffers()
        written = [] if launch.refused else [*self._written_buffers(buffers), *self._variables()]
        asked = Asked(
            (launch.kernel or b"").decode(errors="replace"),
            self._symbols.function(launch.code or 0),
            (launch.grid[0], launch.grid[1], launch.grid[2]),
            (launch.block[0], launch.block[1], launch.block[2]),
            launch.dynamic,
            tuple(len(value) for value in values),
            buffers,
            tuple((address, len(content)) for address, content in written),
            bool(launch.refused),
        )
        self._channel.send(asked, [*values, *(content for _, content in written)])
        answer = self._channel.receive(Answer)
        numbers = {one.address: one.number for one in buffers}
        for address, size in answer.written:
            content = self._channel.bytes(size)
            ctypes.memmove(address, content, size)
            if address in numbers:
                self._of_buffers[numbers[address]] = content
            else:
                self._of_variables[address] = content
        self._library.simt_seen()
        return answer.error

    def _buffers(self) -> tuple[LinkedMemory, ...]:
        count = self._library.simt_buffers(None, ctypes.c_size_t(0))
        found = (_Buffer * count)()
        self._library.simt_buffers(found, ctypes.c_size_t(count))
        return tuple(
            LinkedMemory(b.number, b.begin, b.bytes, b.kind, b.dtype, bool(b.changed))
            for b in found
            if b.bytes
        )

    def _written_buffers(self, buffers: Sequence[LinkedMemory]) -> list[tuple[int, bytes]]:
        """Contents that the device does not have."""
        before, written = self._of_buffers, []
        self._of_buffers = {b.number: before[b.number] for b in buffers if b.number in before}
        for one in buffers:
            if one.number in before and not one.changed and one.kind == OF_DEVICE:
                continue
            content = ctypes.string_at(one.address, one.size)
            if before.get(one.number) != content:
                self._of_buffers[one.number] = content
                written.append((one.address, content))
        return written

    def _variables(self) -> list[tuple[int, bytes]]:
        written = []
        for address, before in self._of_variables.items():
            content = ctypes.string_at(address, len(before))
            if content != before:
                written.append((address, content))
        self._of_variables.update(written)
        return written


def _be_host(
    library: str, channel: Channel, arena: Arena, variables: Mapping[str, int], given: Sequence[str]
) -> NoReturn:
    """Becomes the process of the host's code, in which none of ours runs."""
    try:
        system.die_with_parent(signal.SIGKILL)
        arena.give_up()
        HostCode(Path(library), channel, variables).call_main(library, given)
    except EOFError:
        os._exit(1)


def _end_as(process: int) -> NoReturn:
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other way
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def main() -> None:
    options, library, *arguments = sys.argv[1:]
    asked = json_value(options)
    begun = time.monotonic()
    system.set_dumpable(False)  # the program has our user
    program = ObjectProgram(Path(asked["object"]))
    variables = {plain_name(n): size for n, (_, size) in program.object.variables.items()}
    arena = Arena()
    ours, theirs = Channel.pair()
    host = os.fork()
    if host == 0:
        ours.close()
        os.closerange(_FINDINGS, _RECORD + 1)
        _be_host(library, theirs, arena, variables, arguments)
    theirs.close()
    ours.deadline = begun + _PART_OF_LIMIT * asked["limit_s"]
    with os.fdopen(_FINDINGS, "wb") as findings, os.fdopen(_RECORD, "wb") as record:
        runtime = Path(asked["runtime"])
        recording = Recording(record, asked["record_bytes"], runtime)
        target = targets.load(asked["target"])
        device = ObjectMemoryDevice(program, target, asked["checks"], arena, findings, recording)
        with suppress(EOFError):
            try:
                device.serve(ours)
            except FormError as error:  # the program lies: it is not answered any more
                sys.stderr.write(f"portkern: the program's launches cannot be read: {error}\n")
                os.kill(host, signal.SIGKILL)
    _end_as(host)


if __name__ == "__main__":
    main()
