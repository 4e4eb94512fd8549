"""Launches of one call, written down so that a process without Triton can make them: binaries,
grids and arguments, with which tensor or scalar of the call each argument is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - imported by TritonBackend.build alone
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253

from portkern.errors import BuildError
from portkern.spec.backend import Build
from portkern.spec.launch_plan import BINARIES, PLAN

from . import standin
from .layouts import POINTER, layout

#: Values of a scalar that is not a part of a decision's key: values that nothing else has, by which
#: a plan knows it, and values at which host code may choose other launches, as the call's own.
_VALUES = (0.123456789, 0.2468013579)
_TRIED = (0.0, -0.5, 1.0, 1e30, float("inf"), float("nan"))
_SCALAR = "<f"
_MAKES = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
_ZEROES = ("zeros", "zeros_like", "new_zeros", "zero_")


def record(import_entry: Callable[[], Callable[..., object]], request: Build, workdir: Path) -> str:
    """Writes the plan of ``request``'s call below ``workdir``; '' or why it has none. What raises
    is the candidate's own."""
    if request.candidate.style != "dps":
        return "its entry does not write into tensors that it is given"
    if not all(request.dims.values()):
        return "an empty tensor has no address, and what other lengths launch is not its plan"
    free = [s.name for s in request.signature.scalars if s.dtype == "float32"]
    try:
        plan = _plan(import_entry, request, free)
    except _NoPlanError as error:
        return str(error)
    (workdir / BINARIES).mkdir()
    for digest, binary in plan.binaries.items():
        (workdir / BINARIES / digest).write_bytes(binary)
    (workdir / PLAN).write_text(json.dumps(plan.document()), encoding="utf-8")
    return ""


def _plan(
    import_entry: Callable[[], Callable[..., object]], request: Build, free: Sequence[str]
) -> _Plan:
    """The launches of the call wherever its tensors lie, and whatever its ``free`` scalars are;
    where host code chooses by one, of their values in the call alone. Raises _NoPlanError."""

    def recorded(values: Mapping[str, float], free: Sequence[str]) -> _Plan:
        return _Recording(request, {**request.scalars, **values}, free).plan(import_entry)

    own = {name: float(request.scalars[name]) for name in free}
    fixed, again = (recorded(own, ()) for _ in range(2))
    if again.document() != fixed.document():
        raise _NoPlanError("what it launches is another in each call, as of tensors elsewhere")
    if not free:
        return fixed
    names = [s.name for s in request.signature.scalars]
    fixed.fixed = [[names.index(name), value] for name, value in own.items()]
    try:
        first, other = (
            recorded({n: value + k for k, n in enumerate(free)}, free) for value in _VALUES
        )
        if other.document() != first.document():
            return fixed
        for values in (own, *(own | {name: value} for name in free for value in _TRIED)):
            numbers = {names.index(name): value for name, value in values.items()}
            if recorded(values, ()).document() != first.document(numbers):
                return fixed
    except Exception:  # noqa: BLE001 - the candidate's own, at a value that is not the call's
        return fixed
    return first


class _NoPlanError(Exception):
    pass


@dataclass
class _Plan:
    temporaries: list[int] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    fixed: list[list[Any]] = field(default_factory=list)
    binaries: dict[str, bytes] = field(default_factory=dict)

    def document(self, scalars: Mapping[int, float] | None = None) -> dict[str, Any]:
        """The plan as JSON has it, with the values of ``scalars`` in their places where given."""

        def argument(one: list[Any]) -> list[Any]:
            kind, number, _ = one
            if scalars is None or kind != "scalar":
                return one
            return ["value", struct.pack(_SCALAR, scalars[number]).hex(), 0]

        steps = [
            step | {"arguments": [argument(one) for one in step["arguments"]]}
            if "arguments" in step
            else step
            for step in self.steps
        ]
        return {"temporaries": self.temporaries, "steps": steps, "fixed": self.fixed}


class _Recording:
    """One call of a host function, whose tensors have no memory. Tensors are told apart by their
    storages: those of the call come first, then what the function makes."""

    def __init__(self, request: Build, scalars: Mapping[str, Any], free: Sequence[str]) -> None:
        self.request, self.scalars, self.free = request, scalars, free
        self.made = _Plan()
        self.places: dict[int, tuple[str, int]] = {}
        self.kept: list[torch.Tensor] = []  # or another storage would have the address of one

    def plan(self, import_entry: Callable[[], Callable[..., object]]) -> _Plan:
        with standin.driver(self.request.target, self._launch), _no_tuner():
            entry = import_entry()
            given = standin.arguments(self.request)
            for number, tensor in enumerate(given):
                self._keep(tensor, "given", number)
            with standin.stand_ins(), _Watch(self):
                entry(*given, **self.scalars)
        if not self.made.steps:
            raise _NoPlanError("its entry launches nothing")
        return self.made

    def _keep(self, tensor: torch.Tensor, kind: str, number: int) -> tuple[str, int]:
        self.kept.append(tensor)
        return self.places.setdefault(_storage(tensor), (kind, number))

    def place(self, tensor: torch.Tensor) -> list[Any]:
        """The kind, the number and the offset in bytes."""
        known = self.places.get(_storage(tensor))
        if known is None:
            known = self._keep(tensor, "temporary", len(self.made.temporaries))
            with torch._C.DisableTorchFunction():
                self.made.temporaries.append(tensor.untyped_storage().nbytes())
        return [*known, tensor.storage_offset() * tensor.element_size()]

    def zero(self, tensor: torch.Tensor) -> None:
        if not tensor.is_contiguous():
            raise _NoPlanError("it makes a tensor with gaps zero")
        bytes_ = tensor.numel() * tensor.element_size()
        self.made.steps.append({"zero": self.place(tensor), "bytes": bytes_})

    def _launch(self, launch: standin.StandinLaunch) -> None:
        if launch.special:
            raise _NoPlanError(f"it launches with {launch.special}")
        digest = hashlib.sha256(launch.binary).hexdigest()
        self.made.binaries[digest] = launch.binary
        arguments = [
            self._argument(value, kind)
            for value, kind in zip(launch.arguments, launch.kinds, strict=True)
            if kind != "constexpr"
        ]
        step: dict[str, Any] = {"binary": digest, "name": launch.name, "grid": [*launch.grid]}
        step["threads"] = launch.warps * (self.request.target.warp or 32)
        self.made.steps.append(step | {"shared": launch.shared_bytes, "arguments": arguments})

    def _argument(self, value: Any, kind: str) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return self.place(value)
        if isinstance(value, float) and value in self._sentinels:
            if layout(kind) != _SCALAR:
                raise _NoPlanError(f"it takes a scalar as {kind}")
            return ["scalar", self._sentinels[value], 0]
        form = POINTER if kind.startswith("*") else layout(kind)
        if form is None:
            raise _NoPlanError(f"it launches with an argument of type {kind}")
        packed = struct.pack(form, value or 0 if kind.startswith("*") else value)
        return ["value", packed.hex(), 0]

    @property
    def _sentinels(self) -> dict[float, int]:
        names = [s.name for s in self.request.signature.scalars]
        return {self.scalars[name]: names.index(name) for name in self.free}


def _storage(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what torch is asked to do: memory and views are part of a plan, work is not."""

    def __init__(self, recording: _Recording) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = recording

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        made = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        view = not func._schema.is_mutable and all(r.alias_info for r in func._schema.returns)
        if name in _ZEROES:
            self.recording.zero(made)
        elif name not in _MAKES and not view:
            raise _NoPlanError(f"its host code has PyTorch do {name}, which is not a launch")
        return made


@contextlib.contextmanager
def _no_tuner() -> Iterator[None]:
    """Refuses a tuner's choice, which is made where it runs."""
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def refused(self: Autotuner, *args: object, **kwargs: object) -> object:
        if len(self.configs) > 1:
            raise _NoPlanError("Triton's own tuner chooses what it launches")
        return run(self, *args, **kwargs)

    Autotuner.run = refused
    try:
        yield
    finally:
        Autotuner.run = run


def plan_or_error(
    import_entry: Callable[[], Callable[..., object]], request: Build, workdir: Path
) -> Path:
    """The plan's file. Raises BuildError for a call that has none."""
    if reason := record(import_entry, request, workdir):
        raise BuildError(f"{request.candidate.entry} cannot be launched without Triton: {reason}")
    return workdir / PLAN
