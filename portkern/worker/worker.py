"""The work inside the jail: build, load, run and time, as :mod:`portkern.worker.protocol` asks.

Needs numpy, torch and the backend's own toolchain, nothing else of portkern's dependencies. The
worker of a candidate is told the op's signature and inputs, never a reference or a tolerance; a
separate, trusted worker runs the baseline.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from time import perf_counter  # as it was before a candidate could replace it
from typing import TYPE_CHECKING, Any, TypeGuard, assert_never

from portkern.errors import BuildError, ToolError
from portkern.sandbox.device_memory import OpenedDeviceMemory
from portkern.sandbox.jail import system
from portkern.sandbox.message import Failed
from portkern.sandbox.shared_memory import Rows, SharedMemoryView, TensorPlace
from portkern.spec import registry
from portkern.spec.backend import Buffer, Call, Device, Kernel
from portkern.toolchain import machine_code
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import (
    compiling,
    execution,
    masks,
    plan_launches,
    protocol,
    references,
    timed_inputs,
)
from portkern.worker.baseline import BaselineLaunch
from portkern.worker.output_guards import margins
from portkern.worker.processors import Processors
from portkern.worker.profile import CallProfile
from portkern.worker.protocol import (
    AnyRequest,
    BuiltFiles,
    Changes,
    CheckerFinding,
    Done,
    Layout,
    Loaded,
    OutputForm,
    Ran,
    SeenLaunch,
    Timed,
    Trace,
)
from portkern.worker.state_snapshot import Snapshot

if TYPE_CHECKING:
    import torch

    from portkern.sandbox.jail.programs import Launcher


#: A handle is on its way before a request speaks of it.
HANDLE_S = 10.0


def ahead() -> Iterator[None]:
    """Does in parts what is the same for all workers, before there is one: forms of messages are
    made when they are first read, and backends imported when they are first asked for."""
    protocol.make_readers()
    yield
    for name in registry.BUILTIN:
        with suppress(Exception):  # its own worker will say why
            registry.load(name)
        yield


def serve(
    connection: socket.socket, memory: int, launcher: Launcher | None, handles: socket.socket
) -> None:
    """Answer requests until the evaluator closes the connection. ``memory`` is memory shared with
    it; further ones come by ``handles``."""
    worker = Worker(SharedMemoryView(memory), launcher, handles)
    with connection.makefile("rwb") as stream:
        for line in stream:
            try:
                reply = worker.answer(protocol.request_of(json.loads(line)))
            except Exception as error:  # noqa: BLE001 - the jail's outermost frame reports anything
                log = error.log if isinstance(error, ToolError) else traceback.format_exc()
                reply = Failed(type(error).__name__, str(error), log).line()
            stream.write(reply)
            stream.flush()


class Worker:
    """Holds the loaded kernel, and the calls that are to be timed."""

    def __init__(
        self,
        memory: SharedMemoryView,
        launcher: Launcher | None = None,
        handles: socket.socket | None = None,
    ) -> None:
        self._memory = memory
        self._launcher = launcher
        self._handles = handles
        self._device_memory: OpenedDeviceMemory | None = None
        self._builds = 0
        self._kernel: Kernel | None = None
        self._snapshot: Snapshot | None = None
        self._bases: list[list[torch.Tensor]] = []
        self._poisons: list[torch.Tensor] = []
        self._staged: list[Call] = []
        self._placed: list[tuple[list[Buffer], list[Buffer]]] = []
        self._placed_in: tuple[tuple[Rows, ...], ...] = ()
        #: Keys of what lies over the inputs of each staged call.
        self._masks: tuple[int, ...] = ()
        self._processors = Processors()
        self._returned: list[Sequence[Buffer]] = []

    def answer(self, request: AnyRequest) -> bytes:
        """The line of the reply that belongs to this request."""
        match request:
            case protocol.BuildKernel():
                return request.answer(self.build(request))
            case protocol.Load():
                return request.answer(self.load(request))
            case protocol.Reference():
                return request.answer(self.reference(request))
            case protocol.Run():
                return request.answer(self.run(request))
            case protocol.State():
                return request.answer(Changes(self._changed()))
            case protocol.Base():
                return request.answer(self.base(request))
            case protocol.Forget():
                return request.answer(self.forget())
            case protocol.Stage():
                return request.answer(self.stage(request))
            case protocol.Open():
                return request.answer(self.open(request))
            case protocol.Place():
                return request.answer(self.place(request))
            case protocol.Time():
                return request.answer(self.time())
            case protocol.Idle():
                return request.answer(self.idle(request))
            case protocol.Fetch():
                return request.answer(self.fetch(request))
            case protocol.Look():
                return request.answer(self.look(request))
            case protocol.Compute():
                return request.answer(references.compute(request, self._memory))
            case protocol.Derive():
                return request.answer(references.derive(request, self._memory))
            case protocol.Draw():
                return request.answer(references.draw(request, self._memory))
            case protocol.Describe():
                return request.answer(references.describe(request))
            case protocol.WritePlain():
                return request.answer(references.write_plain(request))
            case protocol.Execute():
                return request.answer(self.execute(request))
            case protocol.BuildProgram():
                return request.answer(compiling.program(request, self._memory))
            case protocol.ListExtension():
                return request.answer(compiling.extension(request))
            case protocol.BuildFile():
                return request.answer(compiling.file(request, self._memory))
            case protocol.Replay():
                return request.answer(plan_launches.replay(request, self._memory))
            case protocol.RunTool():
                return request.answer(compiling.tool(request, self._memory))
            case _:
                assert_never(request)

    def execute(self, asked: protocol.Execute) -> protocol.Executed:
        if self._launcher is None:
            raise RuntimeError("this worker may hold the code of others, and starts no programs")
        return execution.run(asked, self._memory, self._launcher)

    def build(self, asked: protocol.BuildKernel) -> BuiltFiles:
        backend = registry.load(asked.build.candidate.backend)
        self._builds += 1
        workdir = Path(f"build-{self._builds}").absolute()
        workdir.mkdir()
        start = perf_counter()
        artifact = backend.build(asked.build, workdir)
        seconds = perf_counter() - start
        if artifact.path.suffix == ".py" and (code := machine_code.of(artifact.path)):
            artifact = replace(artifact, code=code.digest, code_bytes=code.size)
        files = _files(workdir)
        contents = [file.read_bytes() for file in files]
        self._memory.write_bytes(b"".join(contents))
        sizes = [
            (str(file.relative_to(workdir)), len(content))
            for file, content in zip(files, contents, strict=True)
        ]
        kept = replace(artifact, path=artifact.path.relative_to(workdir))
        return BuiltFiles(kept, tuple(sizes), seconds)

    def load(self, asked: protocol.Load) -> Loaded:
        """Open a module where it lies, which is where nobody in here can write: what is imported,
        now or again, is its text. Of another artifact a copy."""
        system.set_dumpable(True)  # from here on the evaluator looks at its map of memory
        backend = registry.load(asked.build.candidate.backend)
        kept = asked.artifact
        self._snapshot = Snapshot()
        if kept.path.suffix != ".py":
            copied = Path(shutil.copytree(kept.path.parent, "artifact")).absolute()
            kept = replace(kept, path=copied / kept.path.name)
        self._host = TorchDevice("cpu")  # before the candidate is there
        self._kernel = backend.load(kept, asked.build, asked.venue)
        # a GPU's context is made here, while the evaluator works too
        self._kernel.device.synchronize()
        self._snapshot.watch(worker=self, device=self._kernel.device, memory=self._memory)
        code = machine_code.of_bytes(self._kernel.code())
        return Loaded(self._kernel.device.method, *(code or ()))

    def reference(self, asked: protocol.Reference) -> Loaded:
        """Become the baseline: the op's reference in eager mode, or through torch.compile, under
        the precision that its kernels are held to."""
        import torch

        system.set_dumpable(True)  # as in load()
        strict = asked.precision == "strict"
        torch.backends.cuda.matmul.allow_tf32 = not strict
        torch.backends.cudnn.allow_tf32 = not strict  # torch allows it, unless asked
        # what sources of baselines may name without an import
        namespace: dict[str, Any] = {"Any": Any, "torch": torch}
        exec(asked.source, namespace)
        function = torch.compile(namespace["run"]) if asked.compiled else namespace["run"]
        opened = self._host = TorchDevice(asked.device)
        if not opened.gpu:
            torch.ones(1 << 20).relu()  # OpenMP's team is made, which time() spreads

        self._kernel = Kernel(opened, BaselineLaunch(function))
        opened.synchronize()
        return Loaded(opened.method)

    def run(self, asked: protocol.Run) -> Ran:
        if asked.placed:
            return self._run_placed(asked)
        kernel, results = self._loaded(), asked.results
        device = kernel.device
        uploaded = [device.upload(self._memory.tensor(slot)) for slot in asked.inputs]
        blocks = [self._memory.tensor(slot) for slot in asked.outputs]
        if isinstance(device, TorchDevice):
            blocks = [device.upload(block) for block in blocks]
            poisoned = [_within(*pair) for pair in zip(blocks, results, strict=True)]
        elif device.hosts:
            blocks = [block.clone() for block in blocks]
            poisoned = [device.place(_within(*pair)) for pair in zip(blocks, results, strict=True)]
        else:
            poisoned = [device.upload(_within(*pair)) for pair in zip(blocks, results, strict=True)]
        call = Call(uploaded, poisoned, asked.dims, asked.scalars, counted=asked.traced)
        if asked.before:
            self._call_before(asked)
        returned, profile, seconds = self._launched(call)
        changed = self._changed()
        if len(returned) != len(results):
            return Ran(len(returned), (), seconds, changed)
        described = []
        for buffer, slot in zip(returned, results, strict=True):
            described.append(
                replace(self._download(buffer, slot), layout=layout(buffer, uploaded, device))
            )
        for block, slot in zip(blocks, asked.guards, strict=True):
            if isinstance(device, TorchDevice):
                edges = margins(block, slot.nbytes // 2)  # on the device: the rest is large
                self._memory.write(slot, device.download(edges))
            elif device.hosts:
                self._memory.write(slot, margins(block, slot.nbytes // 2))
        for buffer, slot in zip(uploaded, asked.after, strict=True):
            self._memory.write(slot, device.download(buffer))
        findings = tuple(map(_finding, kernel.findings()))
        trace = _trace(profile, kernel) if profile else None
        return Ran(len(returned), tuple(described), seconds, changed, findings, trace)

    def _run_placed(self, asked: protocol.Run) -> Ran:
        """The same on tensors of the evaluator's memory on the GPU, which sees there what the call
        has left: nothing is copied but what the kernel returns beside its buffers."""
        kernel, memory = self._loaded(), self._device_memory
        device = kernel.device
        if memory is None or not isinstance(device, TorchDevice):
            raise RuntimeError("no memory of a GPU was opened")
        given, places = (list(map(memory.tensor, s)) for s in (asked.inputs, asked.results))
        call = Call(given, places, asked.dims, asked.scalars, counted=asked.traced)
        returned, profile, seconds = self._launched(call)
        changed = self._changed()
        if len(returned) != len(places):
            return Ran(len(returned), (), seconds, changed)
        described = tuple(
            replace(form(device.leave(buffer, place)), layout=layout(buffer, given, device))
            for buffer, place in zip(returned, map(memory.tensor, asked.results), strict=True)
        )
        device.synchronize()
        findings = tuple(map(_finding, kernel.findings()))
        trace = _trace(profile, kernel) if profile else None
        return Ran(len(returned), described, seconds, changed, findings, trace)

    def _launched(self, call: Call) -> tuple[Sequence[Buffer], CallProfile | None, float]:
        """The results of one call, its profile where it is counted, and the seconds it took."""
        kernel = self._loaded()
        device = kernel.device
        device.synchronize()
        profile = CallProfile(_gpu(device)) if call.counted else None
        with profile or nullcontext():
            start = perf_counter()
            returned = kernel.launch(call)
            device.synchronize()
            seconds = perf_counter() - start
        return returned, profile, seconds

    def _call_before(self, asked: protocol.Run) -> None:
        """Calls like the one that is asked for, on buffers of their own."""
        kernel, device = self._loaded(), self._loaded().device
        inputs = [device.upload(self._memory.tensor(slot)) for slot in asked.inputs]
        outputs = [device.upload(self._memory.tensor(slot)) for slot in asked.results]
        for _ in range(asked.before):
            kernel.launch(Call(inputs, outputs, asked.dims, asked.scalars))
        device.synchronize()

    def _download(self, buffer: Buffer, slot: TensorPlace) -> OutputForm:
        """The form of a buffer, whose elements go to the slot if that has the same."""
        host = self._loaded().device.download(buffer)
        output = form(host)
        if (output.shape, output.dtype) == (slot.shape, slot.dtype):
            self._memory.write(slot, host)
        return output

    def _changed(self) -> tuple[str, ...]:
        return tuple(self._snapshot.changes()) if self._snapshot else ()

    def base(self, asked: protocol.Base) -> Done:
        device = self._loaded().device
        self._staged, self._returned, self._masks = [], [], ()  # their memory first
        self._bases = [
            [device.keep(self._memory.tensor(slot)) for slot in slots] for slots in asked.inputs
        ]
        self._poisons = [device.keep(self._memory.tensor(slot)) for slot in asked.outputs]
        return Done()

    def forget(self) -> Done:
        self._staged, self._returned, self._bases, self._poisons = [], [], [], []
        self._loaded().device.synchronize()
        self._close_device_memory()
        self._loaded().device.release()
        return Done()

    def open(self, asked: protocol.Open) -> Done:
        """Map memory of the GPU that is the evaluator's, whose handle has come, in the place of
        the last."""
        device = self._loaded().device
        if self._handles is None or not isinstance(device, TorchDevice):
            raise RuntimeError("this worker maps no memory of a GPU")
        self._close_device_memory()
        self._handles.settimeout(HANDLE_S)
        _, [file], _, _ = socket.recv_fds(self._handles, 1, 1)
        try:
            self._device_memory = OpenedDeviceMemory(str(device.device), asked.nbytes, file)
        finally:
            os.close(file)
        return Done()

    def _close_device_memory(self) -> None:
        self._staged, self._returned, self._placed, self._placed_in = [], [], [], ()
        if self._device_memory is not None:
            self._device_memory.close()
            self._device_memory = None

    def stage(self, asked: protocol.Stage) -> Done:
        """Stages calls, each with buffers of its own, which those of the same number before had
        too, with other values."""
        device, calls = self._loaded().device, asked.calls
        base = self._bases[asked.base] if self._bases else []
        self._returned, self._masks = [], ()
        vary = partial(timed_inputs.inputs, rolled=asked.rolled, structured=asked.structured)
        last, self._staged = self._staged[: calls + 1], []
        for number in range(-1, calls):
            before = last[number + 1] if number + 1 < len(last) else None
            # Poisons first: a CPU's caches then hold the inputs, as a baseline's do.
            outputs = self._filled(self._poisons, before.outputs if before else ())
            if before and isinstance(device, TorchDevice):
                inputs = vary(base, asked.seeds, number, into=before.inputs)
            else:
                made = vary(base, asked.seeds, number)
                inputs = self._filled(made, before.inputs if before else ())
            self._staged.append(Call(inputs, outputs, asked.dims, asked.scalars))
        self._returned = [()] * (calls + 1)
        device.synchronize()
        if _on_host(device):
            # In this order: threads that reading starts may run everywhere.
            device.read(x for call in self._staged for x in (*call.outputs, *call.inputs))
            self._processors.hold()
        return Done()

    def place(self, asked: protocol.Place) -> Done:
        """Calls on memory of the evaluator's, which has filled it; the buffers of those before are
        the same. On a host they are read, so that this processor's caches hold them. Where nothing
        is done before a call, masks come off now."""
        device, form = self._loaded().device, (asked.inputs, asked.outputs)
        memory = self._device_memory or self._memory
        if self._placed_in != form:
            self._placed_in, self._placed = form, []
        for number in range(len(self._placed), asked.calls + 1):
            inputs, outputs = (
                [device.place(memory.tensor(rows.row(number))) for rows in several]
                for several in form
            )
            self._placed.append((inputs, outputs))
        placed = self._placed[: asked.calls + 1]
        self._staged = [Call(*buffers, asked.dims, asked.scalars) for buffers in placed]
        self._masks = asked.masks if _unmasks(device) else ()
        for number, key in enumerate(() if self._masks else asked.masks):
            masks.mask([memory.tensor(rows.row(number)) for rows in asked.inputs], key)
        self._returned = [()] * (asked.calls + 1)
        device.synchronize()
        if self._device_memory is not None:
            return Done()
        # In this order: threads that reading starts may run everywhere.
        self._host.read(
            memory.tensor(rows.row(number))
            for number in range(asked.calls + 1)
            for rows in (*asked.outputs, *asked.inputs)
        )
        if _on_host(device):
            self._processors.hold()
        return Done()

    def _filled(self, tensors: Sequence[torch.Tensor], buffers: Sequence[Buffer]) -> list[Buffer]:
        device = self._loaded().device
        if not buffers:
            return [device.upload(tensor) for tensor in tensors]
        return [device.refill(*pair) for pair in zip(buffers, tensors, strict=True)]

    def time(self) -> Timed:
        """Time the staged calls one by one, in microseconds; the first is not counted."""
        kernel = self._loaded()
        if _on_host(kernel.device):
            self._processors.spread()

        def launch(number: int) -> Callable[[], None]:
            def once() -> None:
                self._returned[number] = kernel.launch(self._staged[number])

            return once

        try:
            calls = [*map(launch, range(len(self._staged)))]
            if self._masks and _unmasks(kernel.device):
                unmask = [*map(self._unmasking, range(len(calls)))]
                samples = kernel.device.time(calls, unmask)
            else:
                samples = kernel.device.time(calls)
        finally:
            if _on_host(kernel.device):
                self._processors.free()
        return Timed(tuple(samples[1:]), self._addresses())

    def _unmasking(self, number: int) -> Callable[[], None]:
        """Takes off what lies over the inputs of a staged call."""

        def once() -> None:
            masks.mask(self._staged[number].inputs, self._masks[number])

        return once

    def _addresses(self) -> tuple[tuple[int, ...], ...]:
        """The addresses at which a host's kernel left its outputs, if not in the buffers that it
        was given."""
        calls = list(zip(self._staged, self._returned, strict=True))[1:]
        if not _on_host(self._loaded().device) or all(got is c.outputs for c, got in calls):
            return ()
        return tuple(tuple(map(self._host.address, got)) for _, got in calls)

    def idle(self, asked: protocol.Idle) -> Timed:
        device = self._loaded().device
        samples = device.time([device.idle_call] * (asked.calls + 1))
        return Timed(tuple(samples[1:]))

    def fetch(self, asked: protocol.Fetch) -> Done:
        for buffer, slot in zip(self._returned[asked.call + 1], asked.results, strict=True):
            if self._is_plain(buffer):
                self._download(buffer, slot)
        return Done()

    def look(self, asked: protocol.Look) -> Done:
        device = self._loaded().device
        for number, (places, slot) in enumerate(zip(asked.places, asked.results, strict=True)):
            rows = self._memory.tensor(slot)
            for row, call in zip(rows, asked.calls, strict=True):
                buffer = self._returned[call + 1][number]
                if self._is_plain(buffer):
                    row.copy_(device.view(buffer).reshape(-1)[list(places)])
        return Done()

    def _is_plain(self, buffer: Buffer) -> bool:
        """Whether nothing is computed when it is read; else its slot keeps the poison."""
        return layout(buffer, (), self._loaded().device) == Layout()

    def _loaded(self) -> Kernel:
        if self._kernel is None:
            raise RuntimeError("run before load")
        return self._kernel


def form(tensor: torch.Tensor) -> OutputForm:
    return OutputForm(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def layout(tensor: Buffer, inputs: Sequence[Buffer], device: Device) -> Layout:
    """The oddities of how a torch tensor lies; arrays of other frameworks lack the freedom to be
    odd."""
    import torch

    if not isinstance(device, TorchDevice):
        return Layout()
    if type(tensor) is not torch.Tensor:
        return Layout(type=type(tensor).__name__)
    if vars(tensor):
        return Layout(attributes=tuple(sorted(map(str, vars(tensor)))))
    if tensor.grad_fn is not None or tensor.requires_grad:
        return Layout(owes="a gradient")
    # A negative, a conjugate or a functional tensor has work left for whoever looks at it.
    keys: Any = torch._C._dispatch_keys
    held, plain = keys(tensor), keys(torch.empty(0, device=tensor.device))
    if (held | plain).raw_repr() != plain.raw_repr():
        return Layout(owes=str(held - plain).removeprefix("DispatchKeySet(").removesuffix(")"))
    memory = tensor.untyped_storage().data_ptr()
    same = [i for i, x in enumerate(inputs) if x.untyped_storage().data_ptr() == memory]
    return Layout(
        strides=None if tensor.is_contiguous() else tuple(tensor.stride()),
        device="" if tensor.device.type == device.device.type else str(tensor.device),
        input=same[0] if same and tensor.numel() else None,
    )


def _on_host(device: Device) -> TypeGuard[TorchDevice]:
    """Whether calls run on the main thread, or on a team of which it is one."""
    return isinstance(device, TorchDevice) and not device.gpu


def _unmasks(device: Device) -> TypeGuard[TorchDevice]:
    """Whether it does something before each call that it times, as a plugin's may not."""
    return isinstance(device, TorchDevice) and device.gpu and _times_as_ours(device)


def _times_as_ours(device: TorchDevice) -> bool:
    return type(device).time is TorchDevice.time


def _gpu(device: Device) -> str:
    return str(device.device) if isinstance(device, TorchDevice) and device.gpu else ""


_FINDING = tuple(field.name for field in fields(CheckerFinding))


def _finding(said: Mapping[str, Any]) -> CheckerFinding:
    return CheckerFinding(**{name: said[name] for name in _FINDING if name in said})


def _trace(profile: CallProfile, kernel: Kernel) -> Trace:
    """The trace with the launches that the venue counts itself, or why it has none."""
    trace = profile.trace
    if kernel.launches is not None:
        counts = kernel.counts()
        counted = [
            SeenLaunch(name, count, counts=counts.get(name, {}))
            for name, count in kernel.launches().items()
        ]
        return replace(trace, launches=tuple(counted))
    if not _gpu(kernel.device) and not trace.missing:
        return replace(trace, missing="this venue counts no launches")
    return trace


def _within(block: torch.Tensor, slot: TensorPlace) -> torch.Tensor:
    """The tensor of this form in the middle of a block of bytes."""
    margin = (block.numel() - slot.nbytes) // 2
    inner = block[margin : block.numel() - margin]
    return inner.view(slot.kind).reshape(slot.shape)


def _files(folder: Path) -> list[Path]:
    inside = sorted(folder.rglob("*"))
    for path in inside:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            name = path.relative_to(folder)
            raise BuildError(f"The build left {name}, which is neither a file nor a folder")
    return [path for path in inside if path.is_file()]
