"""Runs a candidate's host function with no GPU, so that Triton compiles what it would launch.

Triton asks its driver for the target, its limits and a way to launch. A driver that answers from
the target's YAML and launches nothing makes the whole JIT work without a device, with the
specialisation, options and heuristics of a real call.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported by TritonBackend.build alone
from torch.overrides import TorchFunctionMode  # noqa: TID253
from torch.utils._pytree import tree_map  # noqa: TID253

from portkern.errors import BuildError
from portkern.spec.backend import Build, Call, Resources
from portkern.spec.op import TensorSpec
from portkern.spec.target import Target
from portkern.toolchain.torch_module import TorchModule

from .binaries import kind_of, resources
from .candidate import build_error

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

#: Each call's tensors lie in another region, so that what is made of an address shows. Addresses
#: are divisible by more than the 16 that Triton looks for, as an allocator's are.
_REGIONS = itertools.cycle(range(1 << 40, 1 << 46, 1 << 40))
_DEVICE = torch.device("cuda", 0)


@dataclass(frozen=True)
class Launches:
    """``kind`` is the binaries' suffix, ``cubin`` or ``hsaco``; ``python`` if there are none."""

    kind: str
    resources: tuple[Resources, ...]
    log: str


def compile_launches(
    import_entry: Callable[[], Callable[..., object]], request: Build, cache: Path
) -> Launches:
    """Compile into ``cache``. Raises BuildError with the candidate's part of the traceback."""
    kind = kind_of(request.target)
    log = io.StringIO()
    with driver(request.target), first_configuration(), contextlib.redirect_stdout(log):
        try:
            entry = import_entry()
            with _StandIns():
                _call(entry, request)
        except BuildError:
            raise
        # The candidate's own code runs here, at import and on the host: it may raise anything.
        except Exception as error:
            raise build_error(request, error) from error
    used = resources(cache, kind, log.getvalue())
    if not used:
        return Launches("python", (), "the entry launched no Triton kernel")
    return Launches(kind, used, log.getvalue().strip())


def _call(entry: Callable[..., object], request: Build) -> None:
    given = arguments(request)
    if request.candidate.style == "module":
        module = TorchModule(entry, request, torch.device("cpu"))
        module.launch(Call(given, (), _dims(request), request.scalars))
        return
    entry(*given, **request.scalars)


def _dims(request: Build) -> dict[str, int]:
    """An empty tensor launches nothing, and the target's code is still asked for."""
    return {axis: length or 1 for axis, length in request.dims.items()}


def arguments(request: Build) -> list[torch.Tensor]:
    """The call's tensors, which stand in for those of a GPU within :func:`stand_ins`."""
    specs: Sequence[TensorSpec] = request.signature.inputs
    if request.candidate.style == "dps":
        specs = (*specs, *request.signature.outputs)
    _StandIn.region = next(_REGIONS)
    with _StandIns():
        return [
            torch.empty(
                spec.sizes(_dims(request)),
                dtype=getattr(torch, spec.resolve(request.dtype)),
                device=_DEVICE,
            )
            for spec in specs
        ]


class _StandIn(torch.Tensor):
    """A tensor without memory that says it lies on a GPU, at an address of its own."""

    region = 0

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return _DEVICE

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    def data_ptr(self) -> int:
        with torch._C.DisableTorchFunction():
            start = int(self.untyped_storage()._cdata) << 5 & (1 << 40) - 1
            return self.region + start + int(self.storage_offset()) * self.element_size()


class _StandIns(TorchFunctionMode):
    """Whatever torch is asked to make on a GPU, or of what lies there, becomes a
    :class:`_StandIn`; torch itself sees tensors of its device for shapes alone."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type[object]],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given = (args, dict(kwargs or {}))
        plain, named = tree_map(_for_shapes, given)
        if "device" in named and named["device"] is not None:
            named["device"] = _for_shapes(torch.device(named["device"]))
        made = func(*plain, **named)
        return tree_map(_stand_in, made)


def stand_ins() -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors of a GPU are made without one."""
    return _StandIns()


def _for_shapes(value: object) -> object:
    if isinstance(value, _StandIn):
        return value.as_subclass(torch.Tensor)
    return (
        torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value
    )


def _stand_in(value: object) -> object:
    if isinstance(value, torch.Tensor) and value.is_meta:
        return value.as_subclass(_StandIn)
    return value


@dataclass(frozen=True)
class StandinLaunch:
    """One launch that Triton would make; ``kinds`` are its signature's types of ``arguments``,
    ``special`` names what it needs beside grid, threads and arguments."""

    name: str
    binary: bytes
    shared_bytes: int
    warps: int
    grid: tuple[int, int, int]
    arguments: Sequence[object]
    kinds: Sequence[str]
    special: str = ""


#: What stands before the arguments in a launcher's parameters: packed metadata, the launch's
#: metadata and two hooks.
_BEFORE_ARGUMENTS = 4

#: Module (none, so that nothing is unloaded), function, registers, spills and the most threads that
#: a block may have.
Loaded = tuple[None, int, int, int, int]


class _Utilities:
    """The functions that Triton asks of a device's runtime library."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.loaded: list[tuple[str, bytes, int]] = []

    def get_device_properties(self, device: object) -> dict[str, int]:
        return {
            "max_shared_mem": self.target.shared_block_bytes or 0,
            "multiprocessor_count": self.target.multiprocessors or 1,
            "warpSize": self.target.warp or 0,
            "max_num_regs": 65536,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: object) -> Loaded:
        self.loaded.append((name, bytes(binary), shared))
        most = getattr(self.target.limits, "threads_block", 1024)
        return None, len(self.loaded) - 1, 0, 0, most


def gpu_target(target: Target) -> GPUTarget:
    """``target`` as Triton's compiler names it."""
    from triton.backends.compiler import GPUTarget

    if target.vendor == "nvidia":
        return GPUTarget("cuda", int(target.arch.removeprefix("sm_")), target.warp)
    return GPUTarget("hip", target.arch, target.warp)


def _special(metadata: Any) -> str:
    """Names what a launch of this kernel takes that is not in its arguments."""
    said = metadata._asdict()
    named = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
    found = [name for name in named if said.get(name)]
    clusters = max(said.get("num_ctas") or 1, *(said.get("cluster_dims") or (1,)))
    return " ".join([*found, *(["clusters of blocks"] if clusters > 1 else [])])


class _Driver:
    """Triton's driver interface for a device that is not here; what is launched is handed to
    ``execute``, and nothing happens without it."""

    def __init__(
        self, target: Target, execute: Callable[[StandinLaunch], None] | None, memory: torch.device
    ) -> None:
        self.utils = _Utilities(target)
        self.execute, self.memory = execute, memory
        # Triton caches a device's limits and kernels by its number, so each target is a device of
        # its own, and each driver that executes: functions are its own.
        self.device = target.name if execute is None else f"{target.name}-{id(self)}"
        self.target = gpu_target(target)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> str:
        return self.device

    def set_current_device(self, device: object) -> None: ...

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return self.memory

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        execute = self.execute
        if execute is None:
            return lambda *args, **kwargs: None

        def launch(x: int, y: int, z: int, stream: int, function: int, *rest: object) -> None:
            name, binary, shared = self.utils.loaded[function]
            kinds = tuple(source.signature.values())
            arguments = rest[_BEFORE_ARGUMENTS:]
            execute(
                StandinLaunch(
                    name,
                    binary,
                    shared,
                    metadata.num_warps,
                    (x, y, z),
                    arguments,
                    kinds,
                    _special(metadata),
                )
            )

        return launch


@contextlib.contextmanager
def driver(
    target: Target,
    execute: Callable[[StandinLaunch], None] | None = None,
    memory: torch.device = _DEVICE,
) -> Iterator[None]:
    """Makes ``target`` Triton's active device; ``execute`` gets what is launched on it, on tensors
    that lie in ``memory``."""
    import triton

    config = triton.runtime.driver
    # 3.6 and 3.9 keep the driver in this attribute; reading the property would look for a GPU.
    before = config._active
    config.set_active(_Driver(target, execute, memory))
    try:
        with triton.knobs.nvidia.scope():
            triton.knobs.nvidia.dump_ptxas_log = True  # where spills are told, on stdout
            yield
    finally:
        config.set_active(before)


@contextlib.contextmanager
def first_configuration() -> Iterator[None]:
    """An autotuner measures its configurations, which takes a GPU; the first one stands for all."""
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def run_first(self: Autotuner, *args: object, **kwargs: object) -> object:
        if len(self.configs) > 1:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            self.configs = self.prune_configs(kwargs)[:1]
        return run(self, *args, **kwargs)

    Autotuner.run = run_first
    try:
        yield
    finally:
        Autotuner.run = run
