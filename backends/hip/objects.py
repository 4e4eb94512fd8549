"""Runs a code object made here: its kernels in the executor of AMD instructions, its host code,
compiled for the same target, on this machine."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BuildError, LaunchError
from portkern.isa.executor import Buffer, Program
from portkern.isa.finding import Finding, Ran
from portkern.spec import abi
from portkern.spec.backend import Build, Call, Missing
from portkern.toolchain import elf
from portkern.toolchain.compilers import compiler
from portkern.toolchain.run_tool import run_tool

from .clang import BUILD_S, Clang, environment

if TYPE_CHECKING:
    import torch

HARNESS = Path(__file__).parent / "harness.cpp"
#: hipErrorLaunchFailure: the launch was stopped, and the findings say why.
_LAUNCH_FAILED, _INVALID_CONFIGURATION = 719, 9
_FATBIN = "__hip_fatbin_"

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_size_t,
)
_MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)


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
    argv: list[str | Path] = [clang.zig, "clang", "-x", "hip"]
    argv += [f"--offload-arch={request.target.arch}", "--offload-host-only"]
    argv += ["-O1", "-fPIC", "-std=c++17", *flags, *clang.host_flags(), source, "-o", compiled]
    env = environment(workdir)
    log = run_tool(argv, whose="foreign", timeout_s=BUILD_S, cwd=workdir, env=env)
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

    program: Program
    library: Path
    request: Build
    #: Of the last call.
    launched: list[tuple[str, Ran]] = field(default_factory=list)

    def __post_init__(self) -> None:
        opened = ctypes.CDLL(str(self.library))
        signature, entry = self.request.signature, self.request.candidate.entry
        self._entry = abi.bind(opened, signature, entry, stream=True)
        self._arguments = abi.Arguments(signature)
        self._heap: dict[int, int] = {}
        self._given: list[Buffer] = []
        self._refused = ""
        self._callbacks = (_LAUNCH(self._launch), _MEMORY(self._memory))
        opened.portkern_attach(*self._callbacks, self.request.target.multiprocessors or 1)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all launches of the last call."""
        return [finding for _, ran in self.launched for finding in ran.findings]

    def launch(self, call: Call) -> Sequence[torch.Tensor]:
        """Raises LaunchError with the first finding for a launch that was stopped."""
        self.launched.clear()
        self._refused = ""
        self._given = [_buffer(tensor, writable=False) for tensor in call.inputs]
        self._given += [_buffer(tensor, writable=True) for tensor in call.outputs]
        pointers = [tensor.data_ptr() for tensor in (*call.inputs, *call.outputs)]
        code = self._entry(*self._arguments.of(pointers, call.dims, call.scalars), None)
        if code != 0:
            why = self._refused or (str(self.findings[-1]) if self.findings else "")
            name = self.request.candidate.entry
            raise LaunchError(
                f"{name} returned {code}, expected 0 (the launch was accepted)"
                + (f"; {why}" if why else "")
            )
        return call.outputs

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
            ran = self.program.run(
                kernel,
                values,
                (grid[0], grid[1], grid[2]),
                (block[0], block[1], block[2]),
                buffers=[*self._given, *(Buffer(at, size) for at, size in self._heap.items())],
                dynamic_lds_bytes=dynamic_lds_bytes,
            )
        except (LaunchError, BuildError) as error:
            self._refused = str(error)
            return _INVALID_CONFIGURATION
        self.launched.append((kernel, ran))
        return 0 if ran.complete else _LAUNCH_FAILED

    def _memory(self, address: int, size: int) -> None:
        if size:
            self._heap[address] = size
        else:
            self._heap.pop(address, None)


def _buffer(tensor: torch.Tensor, *, writable: bool) -> Buffer:
    return Buffer(tensor.data_ptr(), tensor.numel() * tensor.element_size(), writable)
