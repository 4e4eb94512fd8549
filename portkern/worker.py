"""What happens inside the jail: build, load, run and time, one JSON request per line.

Needs numpy, torch and the backend's own toolchain, nothing else of portkern's dependencies. The
worker of a candidate is told the op's signature and inputs, never a reference or a tolerance; a
separate, trusted worker runs the baseline.
"""

from __future__ import annotations

import json
import socket
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from portkern import registry
from portkern.backend import Artifact, Build, Call, Kernel, Venue
from portkern.candidate import Candidate
from portkern.device import TorchDevice
from portkern.errors import ToolError
from portkern.op import Signature
from portkern.target import Target


def serve(connection: socket.socket) -> None:
    """Answer requests until the judge closes the connection."""
    worker = Worker()
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
    """Holds the loaded kernel and the buffers of its last call."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._call: Call | None = None

    def build(self, request: dict[str, Any], workdir: str) -> dict[str, Any]:
        build = build_from_json(request)
        backend = registry.load(build.candidate.backend)
        start = time.perf_counter()
        artifact = backend.build(build, Path(workdir))
        return {"artifact": artifact.to_json(), "seconds": time.perf_counter() - start}

    def load(
        self, request: dict[str, Any], artifact: dict[str, Any], venue: dict[str, Any]
    ) -> dict[str, Any]:
        build = build_from_json(request)
        backend = registry.load(build.candidate.backend)
        self._kernel = backend.load(Artifact.from_json(artifact), build, _venue(venue))
        return {"method": self._kernel.device.method}

    def reference(self, source: str, device: str, compiled: bool) -> dict[str, Any]:
        """Become the baseline: the op's reference in eager mode, or through torch.compile."""
        import torch

        namespace: dict[str, Any] = {"Any": Any, "torch": torch}
        exec(source, namespace)
        function = torch.compile(namespace["run"]) if compiled else namespace["run"]
        opened = TorchDevice(device)

        def launch(call: Call) -> Sequence[Any]:
            outputs = function(*call.inputs, **call.scalars)
            return outputs if isinstance(outputs, tuple) else (outputs,)

        self._kernel = Kernel(opened, launch)
        return {"method": opened.method}

    def run(
        self, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]],
        dims: dict[str, int], scalars: dict[str, Any], results: list[str],
    ) -> dict[str, Any]:  # fmt: skip
        """One call on fresh buffers; ``inputs`` and poisoned ``outputs`` are files of raw bytes.

        Output bytes go to ``results``, and the inputs as they are afterwards beside them.
        """
        kernel = self._loaded()
        device = kernel.device
        uploaded = [device.upload(read_tensor(**file)) for file in inputs]
        poisoned = [device.upload(read_tensor(**file)) for file in outputs]
        self._call = Call(uploaded, poisoned, dims, scalars)
        device.synchronize()
        start = time.perf_counter()
        returned = kernel.launch(self._call)
        device.synchronize()
        seconds = time.perf_counter() - start
        if len(returned) != len(results):
            return {"outputs": len(returned), "seconds": seconds}
        described = []
        for buffer, path in zip(returned, results, strict=True):
            host = device.download(buffer)
            write_tensor(host, Path(path))
            described.append({"shape": list(host.shape), "dtype": str(host.dtype)[len("torch.") :]})
        for buffer, file in zip(uploaded, inputs, strict=True):
            write_tensor(device.download(buffer), Path(file["path"] + ".after"))
        findings = [dict(finding) for finding in kernel.findings()]
        return {"outputs": described, "seconds": seconds, "findings": findings}

    def time(self, repeats: int) -> dict[str, Any]:
        """Time ``repeats`` calls on the buffers of the last run, in microseconds."""
        kernel, call = self._loaded(), self._call
        if call is None:
            raise RuntimeError("time before run")
        start = time.perf_counter()
        samples = kernel.device.time(lambda: kernel.launch(call), repeats=repeats)
        return {"samples": samples, "seconds": time.perf_counter() - start}

    def _loaded(self) -> Kernel:
        if self._kernel is None:
            raise RuntimeError("run before load")
        return self._kernel


def _venue(data: dict[str, Any]) -> Venue:
    return Venue(**data | {"sanitize": tuple(data["sanitize"])})


def build_to_json(build: Build) -> dict[str, Any]:
    candidate = build.candidate
    return {
        "candidate": {
            "op": candidate.op, "backend": candidate.backend, "language": candidate.language,
            "source": candidate.source, "entry": candidate.entry, "style": candidate.style,
        },
        "signature": build.signature.to_json(), "dtype": build.dtype,
        "target": build.target.model_dump(mode="json"), "dims": dict(build.dims),
        "scalars": dict(build.scalars), "runnable": build.runnable, "emulated": build.emulated,
        "checked": build.checked,
    }  # fmt: skip


def build_from_json(data: dict[str, Any]) -> Build:
    return Build(
        Candidate(**data["candidate"]), Signature.from_json(data["signature"]), data["dtype"],
        Target.model_validate(data["target"]), data["dims"], data["scalars"], data["runnable"],
        data["emulated"], data["checked"],
    )  # fmt: skip


def read_tensor(path: str, shape: list[int], dtype: str) -> Any:
    """A torch tensor on the host from a file of its raw bytes."""
    import torch

    count = 1
    for size in shape:
        count *= size
    kind = getattr(torch, dtype)
    if count == 0:
        return torch.empty(shape, dtype=kind)
    return torch.from_file(path, shared=False, size=count, dtype=kind).reshape(shape)


def write_tensor(tensor: Any, path: Path) -> None:
    import torch

    path.unlink(missing_ok=True)
    if tensor.numel() == 0:
        path.write_bytes(b"")
    else:
        tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tofile(path)
