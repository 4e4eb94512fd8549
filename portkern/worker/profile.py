"""A profile of a call: the framework's operators, a vendor's routines, kernels on the GPU.

Used in the worker, around one evaluated call and never around a timed one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from portkern.worker.protocol import SeenLaunch, Trace

#: An event of torch's profiler, which has no types.
Event = Any
#: Operators of these are told by name; a profile has annotations of the user's as well.
_OPERATORS = (
    "aten::",
    "mkldnn::",
    "mkl::",
    "quantized::",
    "onednn::",
    "fbgemm::",
    "Torch-Compiled",
)
#: The name of torch's kernel of ``full`` has it.
_FILLS = "FillFunctor"
_NO_KERNELS = ("Memcpy", "Memset", "Context Sync", "Stream", "Event Sync")
#: What oneMKL and oneDNN print of each routine when they are asked to.
_ROUTINES = ("MKL_VERBOSE ", "onednn_verbose,")
_MAX_PRINTED = 1 << 22


class CallProfile:
    """A context around one call; afterwards :attr:`trace` is what was seen.

    The profiler sees all threads; the routines of oneMKL and oneDNN are also seen when native code
    calls them behind the framework's back. Without torch there is nothing to ask.
    """

    def __init__(self, gpu: str = "") -> None:
        """``gpu`` is torch's name of the one whose kernels are looked at, if any."""
        self._gpu = gpu
        self._profile: Any = None
        self._printed: _Printed | None = None
        self._last: Callable[[], object] = tuple
        self.trace = Trace()

    def __enter__(self) -> CallProfile:
        if "torch" in sys.modules:
            self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._printed is not None:
            _say_routines(False)
            self.trace = replace(self.trace, routines=_routines(self._printed.take()))
        if self._profile is None:
            return
        self._last()  # this one must be in the profile
        if self._gpu:
            sys.modules["torch"].cuda.synchronize(self._gpu)
        with _silent():
            self._profile.__exit__(kind, error, trace)
        events = list(self._profile.kineto_results.events())
        if not any(event.device_type().name == "CPU" for event in events):
            self.trace = replace(self.trace, ended=True)
            return
        kernels = sorted(filter(_is_kernel, events), key=lambda event: int(event.start_ns()))
        unseen = self._gpu and not kernels
        self.trace = replace(
            self.trace,
            operators=_operators(events),
            launches=_counted(without_mark(kernels)),
            missing="the profiler does not see the kernels of this GPU" if unseen else "",
        )

    def _start(self) -> None:
        import torch
        from torch.autograd import profiler

        # Callbacks that stay after a profile would be part of every launch that is timed.
        os.environ.setdefault("TEARDOWN_CUPTI", "1")
        if not self._gpu and _say_routines(True):
            self._printed = _Printed()
        try:
            everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except (AttributeError, TypeError):  # torch before 2.7: the calling thread's alone
            everywhere = None
        profile: Any = profiler.profile
        made = profile(
            use_device="cuda" if self._gpu else None,
            use_kineto=True,
            experimental_config=everywhere,
        )
        try:
            with _silent():
                made.__enter__()
        except RuntimeError as error:
            missing = f"torch's profiler does not start: {error}"
            self.trace = replace(self.trace, missing=missing)
            return
        self._profile = made
        # Of the GPU's work this is a kernel that comes after those of the call.
        self._last = partial(torch.full, (1,), 1.0, device=self._gpu or "cpu")


def without_mark(kernels: Sequence[Event]) -> Sequence[Event]:
    """The kernels without the one that ends the profile, which fills a tensor. It need not be the
    last one: a thread may launch another once the call is over, which counts as the call's."""
    marks = [number for number, kernel in enumerate(kernels) if _FILLS in kernel.name()]
    mark = marks[-1] if marks else len(kernels) - 1
    return [kernel for number, kernel in enumerate(kernels) if number != mark]


def _operators(events: Iterable[Event]) -> tuple[SeenLaunch, ...]:
    """The outermost operators of each thread: ``matmul`` and not the ``mm`` that it calls. The
    last one is the trace's own."""
    outermost = []
    until: dict[int, int] = {}  # by thread, the end of its outermost operator
    for event in sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())):
        thread = event.start_thread_id()
        if event.name().startswith(_OPERATORS) and event.start_ns() >= until.get(thread, 0):
            until[thread] = event.start_ns() + event.duration_ns()
            outermost.append(event)
    return _counted(outermost[:-1])


def _is_kernel(event: Event) -> bool:
    """Whether the event is a kernel on the GPU; copies and fills by the driver, and annotations,
    are not."""
    if event.device_type().name == "CPU" or event.name().startswith(_NO_KERNELS):
        return False
    kind = getattr(event, "activity_type", None)
    return kind is None or "kernel" in str(kind()).lower()


def _counted(events: Iterable[Event]) -> tuple[SeenLaunch, ...]:
    durations: dict[str, list[int]] = {}
    for event in events:
        durations.setdefault(event.name(), []).append(event.duration_ns())
    return tuple(
        SeenLaunch(name, len(some), round(sum(some) / 1e3, 3)) for name, some in durations.items()
    )


def _routines(text: str) -> tuple[str, ...]:
    """``SGEMM`` of ``MKL_VERBOSE SGEMM(N,N,64,…``, ``matmul`` of oneDNN's line about a run."""
    names: dict[str, None] = {}
    for line in text.splitlines():
        if line.startswith(_ROUTINES[0]):
            name, bracket, _ = line.removeprefix(_ROUTINES[0]).partition("(")
            if bracket and name.isidentifier():
                names[name] = None
        elif line.startswith(_ROUTINES[1]) and ",exec," in line:
            parts = line.partition(",exec,")[2].split(",")
            names |= dict.fromkeys(parts[1:2])
    return tuple(names)


def _say_routines(on: bool) -> bool:
    """Have oneMKL and oneDNN print what is called; whether the framework was built with them."""
    import torch

    verbose: Any = getattr(torch._C, "_verbose", None)
    mkl: Any = torch.backends.mkl
    if verbose is None or not mkl.is_available():
        return False
    verbose.mkl_set_verbose(int(on))
    verbose.mkldnn_set_verbose(int(on))
    return True


class _Printed:
    """Captures what is printed from now on; what does not come from the libraries is passed on
    to where it would have gone."""

    def __init__(self) -> None:
        _flush()
        self._file = os.memfd_create("portkern-printed")
        self._before = os.dup(1)
        os.dup2(self._file, 1)

    def take(self) -> str:
        _flush()
        os.dup2(self._before, 1)
        size = min(os.fstat(self._file).st_size, _MAX_PRINTED)
        text = os.pread(self._file, size, 0).decode(errors="replace")
        own = "".join(
            line for line in text.splitlines(keepends=True) if not line.startswith(_ROUTINES)
        )
        if own:
            os.write(self._before, own.encode())
        os.close(self._before)
        os.close(self._file)
        return text


def _flush() -> None:
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


@contextmanager
def _silent() -> Iterator[None]:
    """The profiler's own words are not the kernel's."""
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(null)
