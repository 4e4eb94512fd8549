"""Runs a code object made here: its kernels in the executor of AMD instructions, its host code,
compiled for the same target, on this machine."""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BackendUnavailable, BuildError, LaunchError
from portkern.isa import venue
from portkern.isa.device import DeviceBuffer, ObjectDevice
from portkern.isa.executor import ObjectProgram
from portkern.simt.execute.emulate import FROM_HOST_BYTES, READ_BACK_BYTES, READ_BACK_PART
from portkern.spec import abi
from portkern.spec.backend import Artifact, Build, Call, Kernel, Missing
from portkern.toolchain import elf
from portkern.toolchain.compilers import compiler
from portkern.toolchain.run_tool import run_tool

from ..cuda.ptxas import readable
from .clang import Clang, headers
from .precompiled import BUILD_S, environment

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

HARNESS = Path(__file__).parent / "harness.cpp"
#: hipErrorLaunchFailure: the launch was stopped, and the findings say why.
_LAUNCH_FAILED, _INVALID_CONFIGURATION, _INVALID_VALUE, _SUCCESS = 719, 9, 1, 0
_FATBIN = "__hip_fatbin_"

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_size_t,
)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_RELEASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)

#: Files of an artifact's folder, beside its code object: the host code, or why there is none.
HOST, WHY_NOT = "object-host.so", "object-refused.json"


def build_beside(
    clang: Clang | Missing, request: Build, source: Path, flags: Sequence[str]
) -> None:
    """The host library that :func:`load` opens, in the artifact's folder.

    What cannot be executed here is not a fault of the build for the target: the reason is left
    there.
    """
    folder = source.parent
    try:
        if isinstance(clang, Missing):
            raise BuildError(f"The host code cannot be compiled: {clang}")
        build_host(clang, request, source, folder, flags).rename(folder / HOST)
    except BuildError as error:
        reason = {"message": str(error), "log": error.log}
        (folder / WHY_NOT).write_text(json.dumps(reason), encoding="utf-8")


def runs(artifact: Artifact) -> bool | Missing:
    """Whether :func:`build_beside` left a host library."""
    refused = artifact.path.parent / WHY_NOT
    if not refused.exists():
        return True
    reason = json.loads(refused.read_text(encoding="utf-8"))
    first = next((x for x in reason["log"].splitlines() if "error" in x), "")
    told = f"{reason['message']}; {first}".rstrip("; ")
    return Missing(f"its object cannot be executed here: {told}", "venue=emulator runs the source")


def load(artifact: Artifact, request: Build, checks: Sequence[str] = ()) -> Kernel:
    """The kernel in the executor, with ``checks`` looking on. Raises BackendUnavailable when it
    cannot run there."""
    able = runs(artifact)
    if isinstance(able, Missing):
        raise BackendUnavailable(str(able))
    library = artifact.path.parent / HOST
    launched = venue.Launched(tuple(checks))
    host = Host(ObjectProgram(artifact.path), library, request, launched)
    take = host.take_findings, launched.take_launches, launched.take_counts
    return Kernel(host.device, host.launch, *take)


def build_host(
    clang: Clang, request: Build, source: Path, workdir: Path, flags: Sequence[str] = ()
) -> Path:
    """The host side of ``source`` as a library whose launches go to :class:`Host`.

    Raises BuildError, also for calls of HIP's runtime that the harness does not have.
    """
    host = compiler(platform.machine())
    if isinstance(host, Missing):
        raise BuildError(f"The host code cannot be compiled: {host}")
    compiled, output = source.with_suffix(".host.o"), source.with_suffix(".host.so")
    env = environment(workdir)

    def run(argv: Sequence[str | Path]) -> str:
        return run_tool(argv, whose="foreign", timeout_s=BUILD_S, cwd=workdir, env=env)

    log = headers(clang, request.target, "host").compile(run, (source, "-o", compiled), flags)
    link: list[str | Path] = [
        *host.argv,
        "-std=c++17",
        "-shared",
        "-fPIC",
        "-O1",
        compiled,
        HARNESS,
    ]
    link += [f"-Wl,--defsym={name}=portkern_fatbin" for name in _fatbins(compiled)]
    try:
        link += ["-Wl,-z,defs", "-o", output]
        run_tool(link, whose="foreign", timeout_s=BUILD_S, cwd=workdir)
    except BuildError as error:
        raise BuildError(
            "The host code calls what the executor's HIP runtime does not have", log=error.log + log
        ) from error
    return output


def _fatbins(compiled: Path) -> list[str]:
    """The symbols under which host code expects its device code."""
    from elftools.elf.sections import SymbolTableSection

    with elf.opened(compiled) as file:
        tables = [part for part in file.iter_sections() if isinstance(part, SymbolTableSection)]
        names = [entry.name for table in tables for entry in table.iter_symbols()]
    return sorted({name for name in names if name.startswith(_FATBIN)})


@dataclass
class Host:
    """A kernel's host code, loaded, and the code object that its launches run."""

    program: ObjectProgram
    library: Path
    request: Build
    #: The launches of the last call.
    launched: venue.Launched
    device: ObjectDevice = field(default_factory=ObjectDevice)

    def __post_init__(self) -> None:
        opened = ctypes.CDLL(str(self.library))
        signature, entry = self.request.signature, self.request.candidate.entry
        self._entry = abi.bind(opened, signature, entry, stream=True)
        self._arguments = abi.Arguments(signature)
        self._refused: LaunchError | None = None
        self._notes: list[JsonObject] = []
        memory = self.device.memory
        self._callbacks = (
            _LAUNCH(self._launch),
            _ALLOCATE(self._allocate),
            _RELEASE(lambda at: _SUCCESS if memory.release(at or 0) else _INVALID_VALUE),
            _COPY(lambda *given: _SUCCESS if memory.copy(*_numbers(given)) else _INVALID_VALUE),
            _FILL(lambda *given: _SUCCESS if memory.fill(*_numbers(given)) else _INVALID_VALUE),
        )
        opened.portkern_attach(*self._callbacks, self.request.target.multiprocessors or 1)

    def take_findings(self) -> Sequence[JsonObject]:
        """The findings of the last call, as workers report them."""
        return [*self.launched.take_findings(), *self._notes]

    def launch(self, call: Call) -> Sequence[DeviceBuffer]:
        """Raises LaunchError with the first finding for a launch that was stopped."""
        self.launched.begin(counted=call.counted)
        self._refused, self._notes = None, []
        self.device.memory.begin()
        for buffer in (*call.inputs, *call.outputs):
            buffer.block.writable = buffer not in call.inputs
        pointers = [buffer.data_ptr() for buffer in (*call.inputs, *call.outputs)]
        code = self._entry(*self._arguments.of(pointers, call.dims, call.scalars), None)
        if self._refused is not None:
            raise self._refused
        if code != 0:
            name = self.request.candidate.entry
            raise LaunchError(f"{name} returned {code}, expected 0 (the launch was accepted)")
        self._notes = [*self._work_of_the_host(call)]
        return call.outputs

    def _work_of_the_host(self, call: Call) -> Iterator[JsonObject]:
        """Findings about work that host code did although it is the device's to do."""
        for spec, buffer in zip(self.request.signature.outputs, call.outputs, strict=True):
            if buffer.block.copied > FROM_HOST_BYTES:
                message = (
                    f"{buffer.block.copied} bytes of the output {spec.name!r} were copied from "
                    f"host memory, expected at most {FROM_HOST_BYTES}"
                )
                yield {"code": "object-host-wrote", "severity": "error", "message": message}
        given, seen = sum(buffer.bytes for buffer in call.inputs), self.device.memory.read_back
        if seen > max(READ_BACK_BYTES, READ_BACK_PART * given):
            message = f"host code read back {seen} bytes of device data; the inputs have {given}"
            yield {"code": "object-host-read", "severity": "error", "message": message}

    def _launch(
        self,
        name: bytes,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[int],
        dynamic_lds_bytes: int,
    ) -> int:
        kernel = name.decode(errors="replace")
        try:
            explicit = self.program.object.kernel(kernel).explicit
            values = [ctypes.string_at(arguments[k], a.size) for k, a in enumerate(explicit)]
            with self.device.memory.opened() as buffers:
                ran = self.program.run(
                    kernel,
                    values,
                    (grid[0], grid[1], grid[2]),
                    (block[0], block[1], block[2]),
                    buffers=buffers,
                    dynamic_lds_bytes=dynamic_lds_bytes,
                    checks=self.launched.looking,
                )
            self.launched.accept(readable(kernel), ran)
        except BuildError as error:
            self._refused = self._refused or LaunchError(str(error))
            return _INVALID_CONFIGURATION
        except LaunchError as error:
            self._refused = self._refused or error
            return _LAUNCH_FAILED
        return _SUCCESS

    def _allocate(self, size: int) -> int | None:
        try:
            return self.device.memory.allocate(size)
        except MemoryError:
            return None


def _numbers(given: Sequence[int | None]) -> Sequence[int]:
    """Addresses and sizes; ctypes has None for a null pointer."""
    return [number or 0 for number in given]
