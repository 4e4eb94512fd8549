"""What happens inside the jail: build, load, run and time, one JSON request per line.

Needs numpy, torch and the backend's own toolchain, nothing else of portkern's dependencies. The
worker of a candidate is told the op's signature and inputs, never a reference or a tolerance; a
separate, trusted worker runs the baseline.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from portkern.errors import BuildError, ToolError
from portkern.sandbox.shared_memory import SharedMemoryView, Slot, size_of
from portkern.spec import registry
from portkern.spec.backend import Artifact, Build, Call, Kernel, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Precision, Signature
from portkern.spec.target import Target
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import timed_inputs
from portkern.worker.output_guards import margins
from portkern.worker.profile import CallProfile
from portkern.worker.state_snapshot import Snapshot


def serve(connection: socket.socket, memory: int) -> None:
    """Answer requests until the evaluator closes the connection. ``memory`` is memory shared with
    it."""
    worker = Worker(SharedMemoryView(memory))
    with connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            request = json.loads(line)
            try:
                reply = {"ok": True, **getattr(worker, request.pop("do"))(**request)}
            except Exception as error:  # noqa: BLE001 - the jail's outermost frame reports anything
                log = error.log if isinstance(error, ToolError) else traceback.format_exc()
                reply = {"ok": False, "error": type(error).__name__, "message": str(error)}
                reply["log"] = log
            stream.write(json.dumps(reply) + "\n")
            stream.flush()


class Worker:
    """Holds the loaded kernel, and the calls that are to be timed."""

    def __init__(self, memory: SharedMemoryView) -> None:
        self._memory = memory
        self._builds = 0
        self._kernel: Kernel | None = None
        self._snapshot: Snapshot | None = None
        self._base: list[Any] = []
        self._poisons: list[Any] = []
        self._staged: list[Call] = []
        self._processors = sorted(os.sched_getaffinity(0))
        self._returned: list[Sequence[Any]] = []

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build in a folder of the scratch; the files in it go to the evaluator one after the
        other, with the path and the size of each in the reply."""
        build = build_from_json(request)
        backend = registry.load(build.candidate.backend)
        self._builds += 1
        workdir = Path(f"build-{self._builds}").absolute()
        workdir.mkdir()
        start = time.perf_counter()
        artifact = backend.build(build, workdir)
        seconds = time.perf_counter() - start
        files = _files(workdir)
        contents = [file.read_bytes() for file in files]
        self._memory.write_bytes(b"".join(contents))
        sizes = [
            [str(file.relative_to(workdir)), len(content)]
            for file, content in zip(files, contents, strict=True)
        ]
        told = artifact.to_json() | {"path": str(artifact.path.relative_to(workdir))}
        return {"artifact": told, "files": sizes, "seconds": seconds}

    def load(
        self, request: dict[str, Any], artifact: dict[str, Any], venue: dict[str, Any]
    ) -> dict[str, Any]:
        """Open a copy of the artifact: compilers keep what they still make beside it."""
        build = build_from_json(request)
        backend = registry.load(build.candidate.backend)
        kept = Artifact.from_json(artifact)
        self._snapshot = Snapshot()
        copied = Path(shutil.copytree(kept.path.parent, "artifact")).absolute() / kept.path.name
        self._kernel = backend.load(replace(kept, path=copied), build, _venue(venue))
        # a GPU's context is made here, while the evaluator works too
        self._kernel.device.synchronize()
        return {"method": self._kernel.device.method}

    def reference(
        self, source: str, device: str, compiled: bool, precision: Precision = "strict"
    ) -> dict[str, Any]:
        """Become the baseline: the op's reference in eager mode, or through torch.compile, under
        the precision that its kernels are held to."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = precision != "strict"
        torch.backends.cudnn.allow_tf32 = precision != "strict"  # torch allows it, unless asked
        namespace: dict[str, Any] = {"Any": Any, "torch": torch}
        exec(source, namespace)
        function = torch.compile(namespace["run"]) if compiled else namespace["run"]
        opened = TorchDevice(device)
        if not opened.gpu:
            torch.ones(1 << 20).relu()  # OpenMP's team is made, which time() spreads

        def launch(call: Call) -> Sequence[Any]:
            outputs = function(*call.inputs, **call.scalars)
            return outputs if isinstance(outputs, tuple) else (outputs,)

        self._kernel = Kernel(opened, launch)
        opened.synchronize()
        return {"method": opened.method}

    def run(
        self,
        inputs: list[Slot],
        outputs: list[Slot],
        results: list[Slot],
        after: list[Slot],
        guards: list[Slot],
        dims: dict[str, int],
        scalars: dict[str, Any],
        traced: bool,
    ) -> dict[str, Any]:
        """One call on fresh buffers that hold ``inputs`` and poisoned ``outputs``; if ``traced``,
        with a look at who does the work.

        Outputs go to ``results``, the inputs as they are afterwards to ``after``. ``outputs`` are
        bytes with a margin on both sides, which goes to ``guards``; buffers that are no torch
        tensors have none, and leave theirs as it was.
        """
        kernel = self._loaded()
        device = kernel.device
        uploaded = [device.upload(self._memory.tensor(slot)) for slot in inputs]
        blocks = [self._memory.tensor(slot) for slot in outputs]
        if isinstance(device, TorchDevice):
            blocks = [device.upload(block) for block in blocks]
            poisoned = [_within(*pair) for pair in zip(blocks, results, strict=True)]
        else:
            poisoned = [device.upload(_within(*pair)) for pair in zip(blocks, results, strict=True)]
        call = Call(uploaded, poisoned, dims, scalars)
        device.synchronize()
        trace = CallProfile(_gpu(device)) if traced else nullcontext()
        with trace:
            start = time.perf_counter()
            returned = kernel.launch(call)
            device.synchronize()
            seconds = time.perf_counter() - start
        changed = self.state()
        if len(returned) != len(results):
            return {"outputs": len(returned), "seconds": seconds} | changed
        described = []
        for buffer, slot in zip(returned, results, strict=True):
            host = device.download(buffer)
            described.append(form(host) | layout(buffer, uploaded, device))
            if form(host) == {"shape": slot["shape"], "dtype": slot["dtype"]}:
                self._memory.write(slot, host)
        for block, slot in zip(blocks, guards, strict=True):
            if isinstance(device, TorchDevice):
                edges = margins(block, size_of(slot) // 2)  # on the device: the rest is large
                self._memory.write(slot, device.download(edges))
        for buffer, slot in zip(uploaded, after, strict=True):
            self._memory.write(slot, device.download(buffer))
        findings = [dict(finding) for finding in kernel.findings()]
        told = {"outputs": described, "seconds": seconds, "findings": findings} | changed
        return told | ({"trace": _told(trace, kernel)} if isinstance(trace, CallProfile) else {})

    def state(self) -> dict[str, Any]:
        """What the candidate has changed that others work with, since before it was loaded."""
        return {"changed": self._snapshot.changes() if self._snapshot else []}

    def base(self, inputs: list[Slot], outputs: list[Slot]) -> dict[str, Any]:
        """Keep what the tensors of timed calls are made from, where torch can work on it."""
        device = self._loaded().device
        keep = device.upload if isinstance(device, TorchDevice) else _cloned
        self._staged, self._returned = [], []  # their memory first
        self._base = [keep(self._memory.tensor(slot)) for slot in inputs]
        self._poisons = [keep(self._memory.tensor(slot)) for slot in outputs]
        return {}

    def stage(
        self, seeds: list[int], calls: int, dims: dict[str, int], scalars: dict[str, Any]
    ) -> dict[str, Any]:
        """Make the tensors of so many calls, and of one for warming up. Each has buffers of its
        own, which those of the same number before had too, with other values."""
        device = self._loaded().device
        self._returned = []
        last, self._staged = self._staged[: calls + 1], []
        for number in range(-1, calls):
            before = last[number + 1] if number + 1 < len(last) else None
            # Poisons first: a CPU's caches then hold the inputs, as a baseline's do.
            outputs = self._filled(self._poisons, before.outputs if before else ())
            if before and isinstance(device, TorchDevice):
                inputs = timed_inputs.inputs(self._base, seeds, number, into=before.inputs)
            else:
                made = timed_inputs.inputs(self._base, seeds, number)
                inputs = self._filled(made, before.inputs if before else ())
            self._staged.append(Call(inputs, outputs, dims, scalars))
        self._returned = [()] * (calls + 1)
        device.synchronize()
        return {}

    def _filled(self, tensors: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        device = self._loaded().device
        if not buffers:
            return [device.upload(tensor) for tensor in tensors]
        return [device.refill(*pair) for pair in zip(buffers, tensors, strict=True)]

    def time(self) -> dict[str, Any]:
        """Time the staged calls one by one, in microseconds; the first is not counted."""
        kernel = self._loaded()
        if isinstance(kernel.device, TorchDevice) and not kernel.device.gpu:
            _spread_threads(self._processors)

        def launch(number: int) -> Callable[[], None]:
            def once() -> None:
                self._returned[number] = kernel.launch(self._staged[number])

            return once

        return {"samples": kernel.device.time([*map(launch, range(len(self._staged)))])[1:]}

    def idle(self, calls: int) -> dict[str, Any]:
        """Time as many calls that do nothing: what timing takes by itself."""
        return {"samples": self._loaded().device.time([lambda: None] * (calls + 1))[1:]}

    def output(self, call: int, results: list[Slot]) -> dict[str, Any]:
        """The outputs of a timed call; 0 is the first that was counted."""
        device = self._loaded().device
        for buffer, slot in zip(self._returned[call + 1], results, strict=True):
            host = device.download(buffer)
            if form(host) == {"shape": slot["shape"], "dtype": slot["dtype"]}:
                self._memory.write(slot, host)
        return {}

    def _loaded(self) -> Kernel:
        if self._kernel is None:
            raise RuntimeError("run before load")
        return self._kernel


def _spread_threads(processors: Sequence[int]) -> None:
    """The main thread on the first, the others in turn on the rest: OpenMP's teams, which are made
    one after the other, then have a processor for each of their threads. A scheduler that puts two
    of a team on one makes a region take a time slice, a hundred times what it should."""
    main = os.getpid()
    others = sorted({int(task.name) for task in Path("/proc/self/task").iterdir()} - {main})
    if len(processors) < 2 or not others:
        return
    os.sched_setaffinity(main, processors[:1])
    for thread, processor in zip(others, itertools.cycle(processors[1:]), strict=False):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, {processor})


def _venue(data: dict[str, Any]) -> Venue:
    return Venue(**data | {"sanitize": tuple(data["sanitize"])})


def build_to_json(build: Build) -> dict[str, Any]:
    candidate = build.candidate
    return {
        "candidate": {
            "op": candidate.op,
            "backend": candidate.backend,
            "language": candidate.language,
            "source": candidate.source,
            "entry": candidate.entry,
            "style": candidate.style,
        },
        "signature": build.signature.to_json(),
        "dtype": build.dtype,
        "target": build.target.model_dump(mode="json"),
        "dims": dict(build.dims),
        "scalars": dict(build.scalars),
        "runnable": build.runnable,
        "emulated": build.emulated,
        "checked": build.checked,
    }


def build_from_json(data: dict[str, Any]) -> Build:
    return Build(
        Candidate(**data["candidate"]),
        Signature.from_json(data["signature"]),
        data["dtype"],
        Target.model_validate(data["target"]),
        data["dims"],
        data["scalars"],
        data["runnable"],
        data["emulated"],
        data["checked"],
    )


def form(tensor: Any) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def layout(tensor: Any, inputs: Sequence[Any], device: Any) -> dict[str, Any]:
    """What is odd about where a torch tensor lies; arrays of other frameworks lack the freedom."""
    import torch

    if not isinstance(device, TorchDevice):
        return {}
    if type(tensor) is not torch.Tensor:
        return {"type": type(tensor).__name__}
    if vars(tensor):
        return {"attributes": sorted(map(str, vars(tensor)))}
    if tensor.grad_fn is not None or tensor.requires_grad:
        return {"owes": "a gradient"}
    # A negative, a conjugate or a functional tensor has work left for whoever looks at it.
    keys: Any = torch._C._dispatch_keys
    held, plain = keys(tensor), keys(torch.empty(0, device=tensor.device))
    if (held | plain).raw_repr() != plain.raw_repr():
        return {"owes": str(held - plain).removeprefix("DispatchKeySet(").removesuffix(")")}
    odd: dict[str, Any] = {}
    if not tensor.is_contiguous():
        odd["strides"] = list(tensor.stride())
    if tensor.device.type != device.device.type:
        odd["device"] = str(tensor.device)
    memory = tensor.untyped_storage().data_ptr()
    same = [i for i, one in enumerate(inputs) if one.untyped_storage().data_ptr() == memory]
    if same and tensor.numel():
        odd["input"] = same[0]
    return odd


def _gpu(device: Any) -> str:
    return str(device.device) if isinstance(device, TorchDevice) and device.gpu else ""


def _told(trace: CallProfile, kernel: Kernel) -> dict[str, Any]:
    """With the launches that the venue counts itself, or why it has none."""
    told = trace.to_json()
    if kernel.launches is not None:
        counted = kernel.launches().items()
        return told | {"launches": [{"name": name, "count": count} for name, count in counted]}
    if not _gpu(kernel.device) and not told["missing"]:
        return told | {"missing": "this venue counts no launches"}
    return told


def _cloned(tensor: Any) -> Any:
    return tensor.clone()


def _within(block: Any, slot: Slot) -> Any:
    """The tensor of this form in the middle of a block of bytes."""
    import torch

    margin = (block.numel() - size_of(slot)) // 2
    inner = block[margin : block.numel() - margin]
    return inner.view(getattr(torch, slot["dtype"])).reshape(slot["shape"])


def _files(folder: Path) -> list[Path]:
    inside = sorted(folder.rglob("*"))
    for path in inside:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            name = path.relative_to(folder)
            raise BuildError(f"The build left {name}, which is neither a file nor a folder")
    return [path for path in inside if path.is_file()]
