"""An OpenCL device inside the worker: its buffers, its clock and its compiled programs."""

from __future__ import annotations

import ctypes
import math
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError
from portkern.spec.backend import Device
from portkern.spec.op import ITEMSIZE
from portkern.spec.target import Target
from portkern.toolchain.source_tree import SourceTree
from portkern.toolchain.torch_device import FLUSH_BYTES, FLUSHES

from . import binary, platforms

if TYPE_CHECKING:
    import numpy
    import numpy as np
    import numpy.typing as npt
    import pyopencl
    import torch

HARNESS = Path(__file__).parent / "harness.cl"
#: Groups that fill a large GPU, and what ``portkern/rows.h`` says of narrow rows.
FILL_GROUPS = 512
TILE_WG, TILE_MOST, TILE_SHARE = 128, 16, 24
#: Elements that a CPU copies in the time in which PoCL wakes its threads and is told that they are
#: done: with more cores than two, more threads.
NEARBY = 1 << 16
#: The elements that make a group worth its launch on a CPU, and how many groups are always wanted.
CPU_GROUP, CPU_GROUPS = 4096, 32
#: Headers that SOURCE may include, such as ``portkern/tile.h``.
INCLUDE = Path(__file__).parent / "include"
_HEADER = re.compile(r"^#include <(portkern/\w+\.h)>$", re.MULTILINE)


@dataclass(frozen=True)
class ClTensor:
    """A buffer of bytes, and what they are; ``buffer`` is what a kernel receives. ``memory``: whose
    it is on, if not its own."""

    buffer: pyopencl.Buffer
    shape: tuple[int, ...]
    dtype: str
    memory: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


#: What flushes the L2: read, not written, since the timed call would pay for writing that back.
READ = """
kernel void read(global uint4 *x) {
    const uint4 v = x[get_global_id(0)];
    if ((v.x | v.y | v.z | v.w) != 0)  // never, which the compiler cannot know
        x[get_global_id(0)] = (uint4)(0);
}
"""


class ClDevice(Device):
    """Opened by its address, ``opencl:<platform>:<index>``.

    ``cpu`` says that kernels take the shape that suits a CPU, which an emulated GPU's do not.
    """

    def __init__(self, address: str, *, emulated: bool) -> None:
        cl = load_pyopencl()
        _, number, index = address.split(":")
        self.cl = cl
        device = cl.get_platforms()[int(number)].get_devices()[int(index)]
        self.gpu = device.type == cl.device_type.GPU
        self.options = platforms.checker_options(device)
        self._nvidia = device.compute_capability_major_nv if _is_nvidia(device) else 0
        self.cpu = not self.gpu and not emulated
        caller = platforms.caller_of(device) if self.cpu else None
        self.context = cl.Context([device] if caller is None else [device, caller])
        profiling = cl.command_queue_properties.PROFILING_ENABLE if self.gpu else 0
        self.queue = cl.CommandQueue(self.context, device, properties=profiling)
        self.nearby = cl.CommandQueue(self.context, caller) if caller is not None else None
        self.method = (
            "OpenCL profiling markers, L2 flushed clean"
            if self.gpu
            else "host clock around launch and finish, caches warm"
        )
        # Made here: what a device has of its own afterwards, the candidate would have put there.
        self._flush = self._zeros(FLUSH_BYTES) if self.gpu else None
        self._read = cl.Program(self.context, READ).build().read if self.gpu else None

    def _zeros(self, nbytes: int) -> pyopencl.Buffer:
        import numpy

        buffer: pyopencl.Buffer = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, nbytes)
        self.cl.enqueue_fill_buffer(self.queue, buffer, numpy.int32(0), 0, nbytes)
        return buffer

    def tensor_cores(self, target: Target) -> bool:
        """Whether SOURCE may ask for ``mma.sync`` of 16 bits, which a stand-in does by itself."""
        return self._nvidia >= 8 if self.gpu else not self.cpu and target.vendor == "nvidia"

    def upload(self, host: torch.Tensor) -> ClTensor:
        flags = self.cl.mem_flags.READ_WRITE
        raw = _bytes(host.contiguous())
        # OpenCL has no empty buffers; kernels read the last elements as a vector of 16 bytes.
        buffer = self.cl.Buffer(self.context, flags, max(-(-raw.nbytes // 16) * 16, 16))
        if raw.nbytes:
            self.cl.enqueue_copy(self.queue, buffer, raw)
        return ClTensor(buffer, tuple(host.shape), str(host.dtype).removeprefix("torch."))

    @property
    def hosts(self) -> bool:
        return not self.gpu

    def place(self, host: torch.Tensor) -> ClTensor:
        """A buffer on the host's own memory, rounded up as :meth:`upload` does, with some of what
        lies behind."""
        import numpy

        if not host.numel():
            return self.upload(host)
        size = -(-host.numel() * host.itemsize // 16) * 16
        there = memoryview((ctypes.c_char * size).from_address(host.data_ptr())).cast("B")
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.USE_HOST_PTR
        raw = numpy.frombuffer(there, dtype=numpy.uint8)
        buffer = self.cl.Buffer(self.context, flags, hostbuf=raw)
        kind = str(host.dtype).removeprefix("torch.")
        return ClTensor(buffer, tuple(host.shape), kind, host)

    def refill(self, buffer: ClTensor, host: torch.Tensor) -> ClTensor:
        if buffer.nbytes:
            self.cl.enqueue_copy(self.queue, buffer.buffer, _bytes(host.contiguous()))
        return buffer

    def download(self, buffer: ClTensor) -> torch.Tensor:
        import torch

        host = torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype))
        if buffer.nbytes:
            self.cl.enqueue_copy(self.queue, _bytes(host), buffer.buffer)
        return host

    def synchronize(self) -> None:
        self.queue.finish()
        if self.nearby is not None:
            self.nearby.finish()

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        return self._time_gpu(calls) if self.gpu else self._time_host(calls)

    def idle_call(self) -> None:
        """Does nothing."""

    def _time_host(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        samples = []
        for call in calls:
            start = time.perf_counter_ns()
            call()
            self.synchronize()
            samples.append((time.perf_counter_ns() - start) / 1e3)
        return samples

    def _time_gpu(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        cl, marks = self.cl, []
        assert self._read is not None
        for call in calls:
            for _ in range(FLUSHES):
                self._read(self.queue, (FLUSH_BYTES // 16,), (256,), self._flush)
            start = cl.enqueue_marker(self.queue)
            call()
            marks.append((start, cl.enqueue_marker(self.queue)))
            self.queue.flush()
        self.queue.finish()
        return [(end.profile.end - start.profile.end) / 1e3 for start, end in marks]


def _is_nvidia(device: pyopencl.Device) -> bool:
    return "cl_nv_device_attribute_query" in device.extensions


def _bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """A contiguous tensor's memory as a numpy array, which knows no bfloat16."""
    import torch

    return (
        tensor.reshape(-1).view(torch.uint8).numpy()
        if tensor.numel()
        else tensor.new_empty(0).byte().numpy()
    )


class OpenCLProgram:
    """The compiled SOURCE: ``program.name(queue, global_size, local_size, *arguments)``.

    ``cpu`` and ``vec`` are PORTKERN_CPU and VEC of the harness. ``tensor_cores``: whether elements
    have 16 bits and ``portkern/tile.h`` multiplies them on such.
    """

    def __init__(
        self,
        device: ClDevice,
        source: str,
        macros: Mapping[str, int],
        dtype: str,
        tree: SourceTree,
    ) -> None:
        """Raises BuildError with the driver's log."""
        self._device = device
        self._scratch: pyopencl.Buffer | None = None
        self.cpu = device.cpu
        self.tensor_cores = "PORTKERN_TENSOR_CORES" in macros and dtype != "float32"
        self.vec = 8 if self.cpu else 16 // ITEMSIZE[dtype]
        options = [f"-DPORTKERN_{dtype.upper()}=1", *["-DPORTKERN_CPU=1"] * self.cpu]
        options += [f"-D{name}={value}" for name, value in macros.items()]
        options += device.options
        options += [option for folder in _without_blanks(tree) for option in ("-I", folder)]
        # Not among the options, which the driver takes apart where a macro has a blank.
        before = f"{tree.macros}\n{HARNESS.read_text(encoding='utf-8')}"
        text = f'{before}\n#line 1 "SOURCE"\n{_with_headers(source)}{tree.after}'
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", device.cl.CompilerWarning)
                self._program = device.cl.Program(device.context, text).build(options)
        except device.cl.RuntimeError as error:
            raise BuildError("The OpenCL driver rejected SOURCE", log=str(error)) from error

    def row_groups(
        self, rows: int, items: int, most: int, fill: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Global and local size of a kernel whose rows have work for so many ``items`` each, of
        which a group has at most ``most``. Narrow rows share a group of ``fill``; on a CPU each
        work-item has a row. A kernel asks ``row_of()`` for its own."""
        if self.cpu:
            return (rows, 1), (1, 1)
        lanes = min(most, 1 << (int(items) - 1).bit_length())
        tall = max(1, fill // lanes)
        return (-(-rows // tall) * lanes, tall), (lanes, tall)

    def rows_on_cpu(self, rows: int, cols: int) -> tuple[tuple[int], tuple[int]]:
        """Global and local size of a kernel that gives each work-item a row: a group costs PoCL's
        threads 13 ns, so that short rows share one, as far as there are enough."""
        tall = min(max(1, CPU_GROUP // int(cols)), 64, -(-int(rows) // CPU_GROUPS))
        return (-(-int(rows) // tall) * tall,), (tall,)

    def tiles(
        self, rows: int, cols: int
    ) -> tuple[tuple[tuple[int], tuple[int]], tuple[numpy.int32, ...]]:
        """Sizes of a kernel whose groups have a tile of narrow rows each, of at most 256 columns,
        and how they have it: what ``block_of`` takes after ``rows``."""
        import numpy

        lanes = 1 << (-(-int(cols) // TILE_MOST) - 1).bit_length()
        evenly = cols % self.vec == 0 and cols // self.vec % 2 == 0
        pitch = int(cols) + self.vec * evenly
        tall = TILE_WG // lanes
        if lanes == 1:  # several rows of each, if that leaves enough groups
            tall *= max(1, min(TILE_SHARE // pitch, int(rows) // (TILE_WG * FILL_GROUPS)))
        groups = -(-int(rows) // tall)
        shape = tuple(numpy.int32(n) for n in (cols, pitch, lanes, tall))
        return ((groups * TILE_WG,), (TILE_WG,)), shape

    def parts(self, rows: int, cols: int, least: int) -> tuple[int, numpy.int64]:
        """The number of groups for each of few long rows, with ``least`` elements or more each,
        and how many these are: the arguments of ``part_of``."""
        import numpy

        reach = int(cols) + self.vec - 1  # it need not begin with a vector
        wanted = max(1, min(-(-FILL_GROUPS // int(rows)), reach // least))
        share = -(-reach // (wanted * self.vec)) * self.vec
        return -(-reach // share), numpy.int64(share)

    def scratch(self, nbytes: int) -> pyopencl.Buffer:
        """Memory in which kernels of a call leave something for the next; the queue is in order, so
        that calls can share it."""
        if self._scratch is None or self._scratch.size < nbytes:
            cl = self._device.cl
            size = 1 << max(int(nbytes) - 1, 1023).bit_length()
            self._scratch = cl.Buffer(self._device.context, cl.mem_flags.READ_WRITE, size)
        return self._scratch

    def nearby(self, queue: pyopencl.CommandQueue, work: int) -> pyopencl.CommandQueue:
        """Where a kernel that does so much goes, told in elements of a copy: little of it in the
        thread that calls, as PoCL takes 20 µs to wake its own. That is after all that was enqueued
        before, and done on return. On a GPU, ``queue``."""
        near: pyopencl.CommandQueue | None = self._device.nearby
        if near is None or work > NEARBY:
            return queue
        queue.finish()
        return near

    def portkern_code(self) -> bytes:
        """The driver's binary of SOURCE; its kernels have the other names."""
        return binary.code(self._program, self._device.queue.device)

    def __getattr__(self, name: str) -> Callable[..., object]:
        # Each retrieval from pyopencl makes a new kernel, so one is kept.
        kernel: pyopencl.Kernel = getattr(self._program, name)
        launch = _typed(kernel) if self.cpu else kernel
        setattr(self, name, launch)
        return launch


def _typed(kernel: pyopencl.Kernel) -> Callable[..., object]:
    """A kernel that takes its arguments' types from its first call: to find them out at each takes
    pyopencl 7 µs, more than a small kernel."""
    import numpy

    typed = False

    def launch(
        queue: pyopencl.CommandQueue,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        *arguments: Any,
    ) -> object:
        nonlocal typed
        if not typed:
            scalars = [type(a) if isinstance(a, numpy.generic) else None for a in arguments]
            kernel.set_scalar_arg_dtypes(scalars)
            typed = True
        return kernel(queue, global_size, local_size, *arguments)

    return launch


def _with_headers(source: str) -> str:
    """The source with the text of our headers in place of their names: drivers keep programs by the
    text, whatever it includes."""

    def text(include: re.Match[str]) -> str:
        line = source.count("\n", 0, include.start()) + 2
        header = (INCLUDE / include[1]).read_text(encoding="utf-8")
        return f'#line 1 "{include[1]}"\n{header}#line {line} "SOURCE"'

    return _HEADER.sub(text, source)


def _without_blanks(tree: SourceTree) -> list[str]:
    """Folders of includes under names that drivers do not take apart."""
    folders = []
    for number, folder in enumerate(tree.search):
        link = tree.root.with_name(f".include{number}")
        if " " in str(folder) and not link.is_symlink():
            link.symlink_to(folder)
        folders.append(str(link if " " in str(folder) else folder))
    return folders


@lru_cache
def load_pyopencl() -> ModuleType:
    """pyopencl, once PoCL's cache is a private folder: it holds machine code that it loads. Each of
    its threads stays on a processor, if it is not told otherwise: two on one, a call of 40 µs takes
    twice as long."""
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-")
    os.environ.setdefault("POCL_AFFINITY", "1")
    os.environ.update(platforms.pocl_devices())
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    import pyopencl

    return pyopencl
