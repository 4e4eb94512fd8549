"""The emulator venue of source backends: built beside the target's object code, run in the worker.

Every call runs the kernel once as it is. Checkers that are asked for run it again: in a checked
build, under other schedules, at the other width; their findings go with the call's outputs.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BackendUnavailable, BuildError, LaunchError, LaunchTimeout
from portkern.simt.diagnostics import CODES, Diagnostic, Severity
from portkern.simt.execute import runtime_library, source_lines
from portkern.simt.execute.build import ProgramSource, build_library
from portkern.simt.execute.machine import Language, settings
from portkern.simt.execute.options import IN_CHECKED_BUILD, SCHEDULES, ExecutorOptions, Mode, spell
from portkern.spec import abi
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel, Missing, Venue
from portkern.spec.target import Target
from portkern.toolchain import source_tree

if TYPE_CHECKING:
    from _ctypes import CFuncPtr

    import torch

    from portkern.spec.json_types import JsonObject

WHY_NOT = "simt-refused.json"
FINDINGS = "simt-findings.jsonl"
#: Two schedules may add floats in another order; what differs by more is not rounding.
_ROUNDING = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
_TIME_LIMIT = "SX405"
_OTHER_WIDTH_ONLY = "SX410"

#: What host code may copy into an output, such as the start of a sum; and what it may read back in
#: one call, such as a flag or counts: so much, or that part of the inputs.
FROM_HOST_BYTES, READ_BACK_BYTES, READ_BACK_PART = 64, 256, 0.25

#: Runs a call again and looks at what it returned the first time.
Comparison = Callable[[Call, Sequence["torch.Tensor"]], None]


def venue(target: Target) -> Venue | Missing:
    """Where sources for ``target`` run without it; Missing when there is no C++ compiler."""
    box = runtime_library.find()
    if isinstance(box, Missing):
        return Missing(f"the SIMT executor: {box.reason}", box.remedy)
    name = f"SIMT executor, {target.arch} (warp {target.warp})"
    return Venue("emulator", name, version=box.folder.name)


def prepare(request: Build, language: Language) -> tuple[Path, ...]:
    """The executor's runtime and precompiled headers, for :meth:`Backend.prepare`."""
    if not request.emulated or isinstance(runtime_library.find(), Missing):
        return ()
    box = runtime_library.ready()
    box.headers(language, "kernel", request.target)
    if request.checked:
        box.headers(language, "check", request.target)
    return (box.folder,)


def build_beside(source: ProgramSource, request: Build, workdir: Path) -> None:
    """The libraries that :func:`load` opens, in the artifact's folder.

    What the executor cannot run is not a fault of the build for the target: the reason is left
    there.
    """
    source = replace(source, tree=source_tree.write(request.candidate, workdir))
    try:
        for mode in ("kernel", "check") if request.checked else ("kernel",):
            library = build_library(source, request.target, mode, workdir)
            library.rename(workdir / f"simt-{mode}.so")
    except BuildError as error:
        reason = {"message": str(error), "log": error.log}
        (workdir / WHY_NOT).write_text(json.dumps(reason), encoding="utf-8")


def runs(artifact: Artifact) -> bool | Missing:
    """Whether the executor can run what :func:`build_beside` left."""
    refused = artifact.path.parent / WHY_NOT
    if not refused.exists():
        return True
    reason = json.loads(refused.read_text(encoding="utf-8"))
    first = next((x for x in reason["log"].splitlines() if "error" in x), "")
    return Missing(f"The SIMT executor: {reason['message']}; {first}".rstrip("; "))


def load(artifact: Artifact, request: Build, venue: Venue, language: Language) -> Kernel:
    """The kernel on the executor. Raises BackendUnavailable when it cannot run there."""
    able, folder = runs(artifact), artifact.path.parent
    if isinstance(able, Missing):
        raise BackendUnavailable(str(able))
    chosen = frozenset(venue.sanitize)
    emulator = Emulator(request, language, chosen, Path(FINDINGS).absolute())
    emulator.open("kernel", folder / "simt-kernel.so")
    if chosen & IN_CHECKED_BUILD:
        emulator.open("check", folder / "simt-check.so")
    return Kernel(emulator.device, emulator.launch, emulator.take_findings, emulator.take_launches)


@cache
def _runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime_library.ready().runtime), mode=ctypes.RTLD_GLOBAL)
    library.simt_configure.restype = ctypes.c_char_p
    library.simt_take_launches.restype = ctypes.c_char_p
    library.simt_allocate.restype = ctypes.c_void_p
    library.simt_allocate.argtypes = [ctypes.c_size_t]
    library.simt_release.argtypes = [ctypes.c_void_p]
    library.simt_mark_written.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for copy in (library.simt_write, library.simt_read):
        copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    for count in (library.simt_read_back, library.simt_copied_from_host):
        count.restype = ctypes.c_size_t
    for about in (library.simt_device_wrote, library.simt_copied_from_host):
        about.argtypes = [ctypes.c_void_p]
    return library


def configure(values: Mapping[str, str | int | float]) -> None:
    wrong = _runtime().simt_configure(spell(values).encode())
    if wrong:
        raise ValueError(f"the SIMT runtime does not know the setting {wrong.decode()!r}")


def take_launches() -> Mapping[str, int]:
    """Kernels and routines of cuBLAS since the last time, by name."""
    return _counted(_runtime().simt_take_launches().decode(errors="replace"))


def forgive() -> None:
    """Let a kernel run after one that failed."""
    _runtime().simt_forgive()


def forget() -> None:
    """End what the runtime remembers of a call."""
    _runtime().simt_forget()


class EmulatedBuffer:
    """Guarded memory of the executor with a tensor's shape; freed with the object."""

    def __init__(self, host: torch.Tensor, *, written: bool) -> None:
        self.shape, self.dtype = tuple(host.shape), host.dtype
        self.bytes = host.numel() * host.element_size()
        self._address = _runtime().simt_allocate(self.bytes)
        if self._address is None:
            raise MemoryError(f"no memory for a buffer of {self.bytes} bytes")
        self.write(host)
        if written:
            _runtime().simt_mark_written(self._address, self.bytes)

    def data_ptr(self) -> int:
        return int(self._address)

    def write(self, host: torch.Tensor) -> None:
        if self.bytes:
            _runtime().simt_write(self._address, host.contiguous().data_ptr(), self.bytes)

    def read(self) -> torch.Tensor:
        import torch

        host = torch.empty(self.shape, dtype=self.dtype)
        if self.bytes:
            _runtime().simt_read(host.data_ptr(), self._address, self.bytes)
        return host

    def __del__(self) -> None:
        _runtime().simt_release(self._address)


class SimtDevice(Device):
    """Buffers in the executor's memory. It has no time of its own."""

    method = "emulated: no timing"

    def upload(self, host: torch.Tensor) -> EmulatedBuffer:
        return EmulatedBuffer(host, written=True)

    def refill(self, buffer: EmulatedBuffer, host: torch.Tensor) -> EmulatedBuffer:
        return self.upload(host)  # what the checkers know of a buffer begins with it

    def download(self, buffer: EmulatedBuffer) -> torch.Tensor:
        return buffer.read()

    def synchronize(self) -> None:
        """Launches return when their kernel is done."""

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        samples = []
        for call in calls:
            start = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - start) / 1e3)
        return samples

    def idle_call(self) -> None:
        """Does nothing."""


@dataclass
class Emulator:
    """One kernel with its libraries and the checkers that were asked for."""

    request: Build
    language: Language
    chosen: frozenset[str]
    findings: Path
    device: SimtDevice = field(default_factory=SimtDevice)
    _functions: dict[str, CFuncPtr] = field(default_factory=dict)
    _diagnostics: list[Diagnostic] = field(default_factory=list)
    _launched: Mapping[str, int] = field(default_factory=dict)
    _counters: list[Mapping[str, object]] = field(default_factory=list)

    def open(self, mode: str, library: Path) -> None:
        _runtime()
        opened = ctypes.CDLL(str(library))
        signature, entry = self.request.signature, self.request.candidate.entry
        self._functions[mode] = abi.bind(opened, signature, entry, stream=True)

    def take_findings(self) -> Sequence[JsonObject]:
        """The last call's findings, as :meth:`Diagnostic.to_json` writes them."""
        return [diagnostic.to_json() for diagnostic in self._diagnostics]

    def take_launches(self) -> Mapping[str, int]:
        """The launches of the last call's plain run: kernels and routines of cuBLAS, by name."""
        return self._launched

    def take_counters(self) -> Sequence[Mapping[str, object]]:
        """The counters of the last call's checked run, an entry for each launch, if ``counters``
        was asked for."""
        return self._counters

    def launch(self, call: Call) -> Sequence[EmulatedBuffer]:
        self._diagnostics, self._counters = [], []
        take_launches()  # those of before
        inputs, outputs = _Kept(call.inputs), _Kept(call.outputs)
        workers = len(os.sched_getaffinity(0))
        plain = ExecutorOptions(workers=workers, findings=self.findings, account=True)
        _runtime().simt_begin_account()
        self._run("kernel", plain, call)
        self._diagnostics += self._work_of_the_host(call)
        self._launched = take_launches()
        results = [buffer.read() for buffer in call.outputs]
        after = _Kept(call.inputs)
        for again in self._further_runs(plain):
            inputs.restore()
            outputs.restore()
            again(call, results)
        after.restore()
        for buffer, result in zip(call.outputs, results, strict=True):
            buffer.write(result)
        return call.outputs

    def _work_of_the_host(self, call: Call) -> Iterator[Diagnostic]:
        """Findings about work that host code did in the plain run although it is the device's to
        do."""
        for spec, buffer in zip(self.request.signature.outputs, call.outputs, strict=True):
            copied = _runtime().simt_copied_from_host(buffer.data_ptr())
            if copied > FROM_HOST_BYTES:
                message = f"{copied} bytes of the output {spec.name!r} were copied from host memory"
                yield Diagnostic("SX115", f"{message}, expected at most {FROM_HOST_BYTES}")
            elif buffer.bytes and not _runtime().simt_device_wrote(buffer.data_ptr()):
                message = f"no kernel, memset or copy wrote the output {spec.name!r}"
                yield Diagnostic("SX115", message)
        given, seen = sum(buffer.bytes for buffer in call.inputs), _runtime().simt_read_back()
        if seen > max(READ_BACK_BYTES, READ_BACK_PART * given):
            message = f"host code read back {seen} bytes of device data"
            yield Diagnostic("SX116", f"{message}; the call's inputs have {given}")

    def _further_runs(self, plain: ExecutorOptions) -> Iterator[Comparison]:
        if self.chosen & IN_CHECKED_BUILD:
            yield lambda call, _: self._run("check", plain.checked(self.chosen), call)
        if "schedule" in self.chosen:
            for order, seed in SCHEDULES[1:]:
                other = replace(plain, order=order, seed=seed, workers=1)
                yield self._comparing(other, "SX601", f"order {order}, seed {seed}")
            if "check" in self._functions:
                other = replace(plain, order="lockstep", workers=1, limit_s=10 * plain.limit_s)
                yield self._comparing(other, "SX601", "order lockstep", mode="check")
        if "width" in self.chosen:
            width = 32 if self.request.target.warp == 64 else 64
            other = replace(plain, widen=True)
            yield self._comparing(other, "SX602", f"warps of {width} lanes", warp=width)

    def _comparing(
        self,
        run: ExecutorOptions,
        code: str,
        how: str,
        *,
        warp: int | None = None,
        mode: Mode = "kernel",
    ) -> Comparison:
        def compare(call: Call, results: Sequence[torch.Tensor]) -> None:
            problem = ""
            with self._apart(code) as diagnostics:
                try:
                    self._run(mode, run, call, warp=warp)
                except LaunchError as error:
                    if any(
                        diagnostic.code == _OTHER_WIDTH_ONLY for diagnostic in self._diagnostics
                    ):
                        return  # written for this target's width, and says so
                    problem = str(error)
            names = [spec.name for spec in self.request.signature.outputs]
            for name, buffer, result in zip(names, call.outputs, results, strict=True):
                problem = problem or _difference(name, buffer.read(), result)
            problem = problem or next(
                (
                    str(diagnostic)
                    for diagnostic in diagnostics
                    if diagnostic.severity is Severity.ERROR
                ),
                "",
            )
            if problem:
                self._diagnostics.append(Diagnostic(code, f"{how}: {problem}"))

        return compare

    @contextmanager
    def _apart(self, code: str) -> Iterator[list[Diagnostic]]:
        """A context for a width that the target does not have, in which errors only explain the
        difference."""
        before, self._diagnostics = self._diagnostics, []
        diagnostics = self._diagnostics
        try:
            yield diagnostics
        finally:
            self._diagnostics = (
                before if CODES[code].severity is Severity.NOTE else before + diagnostics
            )

    def _run(self, mode: str, run: ExecutorOptions, call: Call, *, warp: int | None = None) -> None:
        facts = settings(self.request.target, self.language)
        configure(facts | run.settings() | ({"warp": warp} if warp else {}))
        self.findings.unlink(missing_ok=True)
        _runtime().simt_forgive()
        fresh = _Unwritten(call) if run.uninitialised else call
        pointers = [buffer.data_ptr() for buffer in (*fresh.inputs, *fresh.outputs)]
        given = abi.Arguments(self.request.signature).of(pointers, call.dims, call.scalars)
        code = self._functions[mode](*given, None)
        _runtime().simt_forget()
        diagnostics, counters = source_lines.read(self.findings)
        self._diagnostics += diagnostics
        self._counters += counters
        if code != 0:
            raise self._launch_error(code, diagnostics)

    def _launch_error(self, code: int, diagnostics: Sequence[Diagnostic]) -> LaunchError:
        entry = self.request.candidate.entry
        first = next(
            (
                str(diagnostic)
                for diagnostic in diagnostics
                if diagnostic.severity is Severity.ERROR
            ),
            "",
        )
        late = any(diagnostic.code == _TIME_LIMIT for diagnostic in diagnostics)
        return (LaunchTimeout if late else LaunchError)(
            f"{entry} returned {code}, expected 0 (the launch was accepted)"
            + (f"; {first}" if first else "")
        )


def _counted(text: str) -> dict[str, int]:
    """The lines of ``simt_take_launches``: ``3 scale<float>``."""
    lines = (line.partition(" ") for line in text.splitlines())
    return {name: int(count) for count, _, name in lines}


class _Kept:
    """The content of buffers, to be put back before the kernel runs again."""

    def __init__(self, buffers: Sequence[EmulatedBuffer]) -> None:
        self._held = [(buffer, buffer.read()) for buffer in buffers]

    def restore(self) -> None:
        for buffer, content in self._held:
            buffer.write(content)


class _Unwritten:
    """The same call on buffers that remember what was written to them: outputs count as not."""

    def __init__(self, call: Call) -> None:
        self.inputs = [EmulatedBuffer(buffer.read(), written=True) for buffer in call.inputs]
        self.outputs = [EmulatedBuffer(buffer.read(), written=False) for buffer in call.outputs]


def _difference(name: str, got: torch.Tensor, expected: torch.Tensor) -> str:
    """The place at which two runs' outputs differ by more than the order of additions explains; ''
    if not."""
    import torch

    if torch.equal(got, expected) or got.numel() == 0:
        return ""
    a, b = got.double(), expected.double()
    scale = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 1.0
    close = torch.isclose(
        a,
        b,
        rtol=0,
        atol=_ROUNDING.get(str(got.dtype)[len("torch.") :], 0.0) * max(scale, 1e-30),
        equal_nan=True,
    )
    wrong = (~close).nonzero()
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"{len(wrong)} of {got.numel()} elements of {name!r} differ, first at {at}: " + (
        f"{float(a[at]):g} against {float(b[at]):g}"
    )
