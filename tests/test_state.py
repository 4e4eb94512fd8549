"""Changes that a kernel makes for others are listed line by line, and make its result
suspicious."""

from __future__ import annotations

import builtins
import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import code_pages
from portkern.evaluator.result import Result
from portkern.records.record import Verdict
from portkern.spec import registry
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.spec.target import load
from portkern.testing import evaluate
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker.protocol import Layout
from portkern.worker.state_snapshot import Snapshot
from portkern.worker.worker import layout

DOWN, UP, ZERO, NEAREST = 0x400, 0x800, 0xC00, 0  # of fenv.h on x86-64


@contextmanager
def set_to(setter: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


def replaced(owner: Any, name: str) -> AbstractContextManager[None]:
    before = getattr(owner, name)
    return set_to(lambda value: setattr(owner, name, value), lambda *_: before, before)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


CHANGES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "the framework's default dtype was torch.float32 and is torch.float64": lambda: set_to(
        torch.set_default_dtype, torch.float64, torch.float32
    ),
    f"the framework's number of threads was {torch.get_num_threads()} and is 7": lambda: set_to(
        torch.set_num_threads, 7, torch.get_num_threads()
    ),
    "the framework's precision of float32 products was highest and is high": lambda: set_to(
        torch.set_float32_matmul_precision, "high", "highest"
    ),
    "the framework's deterministic mode was False and is True": lambda: set_to(
        torch.use_deterministic_algorithms, True, False
    ),
    "the framework's gradient mode was True and is False": torch.no_grad,
    "the framework's inference mode was False and is True": torch.inference_mode,
    "the framework's function modes left on was 0 and is 1": lambda: torch.device("meta"),
    "the framework's autocast on CPUs was False and is True": lambda: torch.autocast("cpu"),
    "numpy's handling of errors": lambda: numpy.errstate(divide="ignore"),
    "Python's garbage collection was True and is False": no_collection,
    "Python's thread switch interval was 5 ms and is 1 ms": lambda: set_to(
        sys.setswitchinterval, 0.001, 0.005
    ),
    "Python's recursion limit was": lambda: set_to(
        sys.setrecursionlimit, 5000, sys.getrecursionlimit()
    ),
    "the treatment of subnormal numbers was to keep them and is to flush them to zero": lambda: (
        set_to(torch.set_flush_denormal, True, False)
    ),
    "torch.relu was replaced": lambda: replaced(torch, "relu"),
    "torch.Tensor.detach was replaced": lambda: replaced(torch.Tensor, "detach"),
    "portkern.toolchain.torch_device.TorchDevice.download was replaced": lambda: replaced(
        TorchDevice, "download"
    ),
    "time.perf_counter_ns was replaced": lambda: replaced(time, "perf_counter_ns"),
    "builtins.sorted was replaced": lambda: replaced(builtins, "sorted"),
}


@pytest.mark.parametrize("told", CHANGES)
def test_each_change_is_told_and_none_when_it_was_undone(told: str) -> None:
    before = Snapshot()
    with CHANGES[told]():
        [*_] = changes = before.changes()
    assert any(line.startswith(told) for line in changes), changes
    assert before.changes() == []


@pytest.mark.parametrize(
    ("mode", "name"), [(UP, "upwards"), (DOWN, "downwards"), (ZERO, "towards zero")]
)
def test_the_rounding_is_seen_by_what_it_does(mode: int, name: str) -> None:
    before, libm = Snapshot(), ctypes.CDLL("libm.so.6")
    if libm.fesetround(mode) != 0:
        pytest.skip("fenv.h has other numbers on this machine")
    try:
        changes = before.changes()
    finally:
        libm.fesetround(NEAREST)
    assert f"the rounding of additions was to nearest and is {name}" in changes


def test_a_worker_that_is_pinned_to_a_processor_does_not_change_the_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As torch 2.14 counts them.
    monkeypatch.setattr(torch, "get_num_interop_threads", lambda: len(os.sched_getaffinity(0)))
    snapshot, processors = Snapshot(), os.sched_getaffinity(0)
    pinned = {min(processors)}
    with set_to(lambda where: os.sched_setaffinity(0, where), pinned, processors):
        assert snapshot.changes() == []
        assert os.sched_getaffinity(0) == pinned


def test_a_function_that_is_added_is_not_a_change() -> None:
    before = Snapshot()
    with ExitStack() as undone:
        torch.an_extension = len  # type: ignore[attr-defined]
        undone.callback(delattr, torch, "an_extension")
        assert before.changes() == []


def test_the_functions_that_it_asks_with_cannot_be_replaced_afterwards() -> None:
    before = Snapshot()
    with (
        set_to(torch.set_default_dtype, torch.float64, torch.float32),
        set_to(
            lambda f: setattr(torch, "get_default_dtype", f),
            lambda: torch.float32,
            torch.get_default_dtype,
        ),
    ):
        assert "the framework's default dtype" in "\n".join(before.changes())


def test_what_is_not_loaded_is_neither_asked_nor_imported() -> None:
    code = (
        "import sys; from portkern.worker.state_snapshot import Snapshot; Snapshot().changes(); "
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.full
def test_toolchains_that_are_imported_later_change_nothing() -> None:
    code = (
        "import importlib, torch; from portkern.worker.state_snapshot import Snapshot\n"
        "before = Snapshot()\n"
        "for name in ('torch._dynamo', 'torch._inductor', 'triton', 'numba', 'jax', 'pyopencl'):\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError: pass\n"
        "torch.compile(lambda x: x + 1)\n"
        "print(before.changes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_looking_is_cheap() -> None:
    """Against the least that it has to do, at the same moment and by the thread's own time: neither
    how fast or busy the machine is matters nor how many modules there are."""
    before, looking_s, reading_s = Snapshot(), [], []
    pairs = [(vars(owner), before._code[place]) for place, owner in before._names.items()]
    for _ in range(20):
        start = time.thread_time()
        before.changes()
        looked = time.thread_time()
        for held, code in pairs:
            for name in code:
                held.get(name)
        read = time.thread_time()
        looking_s.append(looked - start)
        reading_s.append(read - looked)
    assert min(looking_s) < 20 * min(reading_s)


# ---- outputs


def odd(tensor: torch.Tensor) -> Layout:
    return layout(tensor, [], TorchDevice("cpu"))


def test_an_output_has_neither_attributes_nor_work_left() -> None:
    plain = torch.ones(4)
    assert odd(plain) == Layout()
    plain.detach = lambda: plain  # type: ignore[method-assign]
    assert odd(plain) == Layout(attributes=("detach",))
    negative = torch.imag(torch.zeros(4, dtype=torch.complex64).conj())
    assert negative.is_neg() and odd(negative) == Layout(owes="Negative")
    functional = torch._to_functional_tensor(torch.ones(4))
    assert "Functionalize" in odd(functional).owes
    assert odd(torch.ones(4, requires_grad=True)) == Layout(owes="a gradient")


def test_an_output_made_in_inference_mode_is_plain() -> None:
    with torch.inference_mode():
        tensor = torch.ones(4)
    assert odd(tensor) == Layout()


def test_the_download_does_not_ask_what_came_later() -> None:
    device, mine = TorchDevice("cpu"), torch.ones(4)
    with replaced(torch.Tensor, "cpu"):
        mine.detach = lambda: torch.zeros(4)  # type: ignore[method-assign]
        assert torch.equal(device.download(mine), torch.ones(4))


# ---- evaluated

CPU, HERE = registry.load("cpu"), load(host_targets()[0])


def evaluated(source: str, folder: Path) -> Result:
    candidate = Candidate("relu", "cpu", "numba", source, "relu", style="return")
    results = evaluate(
        candidate,
        ops.load("relu"),
        CPU,
        HERE,
        [Workload("some", {"n": 1000})],
        folder=folder,
        torch_ops="allow",
    )
    assert isinstance(results, list), results
    return results[0]


def test_a_change_that_the_kernel_undoes_before_it_returns_is_its_own_business(
    tmp_path: Path,
) -> None:
    source = (
        "import torch\n\ndef relu(x):\n    with torch.no_grad():\n        return x.clamp_min(0)\n"
    )
    assert evaluated(source, tmp_path).verdict is Verdict.PASSED


def test_a_change_in_a_timed_call_is_found_afterwards(tmp_path: Path) -> None:
    source = (
        "import torch\n\nCALLS = []\n\ndef relu(x):\n    CALLS.append(1)\n"
        "    if len(CALLS) == {late}: torch.set_num_threads(1)\n"
        "    return x.clamp_min(0)\n"
    )
    evaluated_calls = 12  # at least: more than the distributions there are
    result = evaluated(source.format(late=evaluated_calls), tmp_path)
    assert result.verdict is Verdict.SUSPICIOUS
    assert result.detail.startswith("the framework's number of threads was")
    assert result.samples is None


def test_code_that_is_put_into_a_function_is_told() -> None:
    before, kept = Snapshot(), TorchDevice._time_cpu.__code__
    try:
        TorchDevice._time_cpu.__code__ = (lambda self, calls: [0.0 for _ in calls]).__code__
        assert before.changes() == [
            "portkern.toolchain.torch_device.TorchDevice._time_cpu was replaced"
        ]
    finally:
        TorchDevice._time_cpu.__code__ = kept
    assert not before.changes()


def test_a_function_that_an_instance_is_given_is_told() -> None:
    before, device = Snapshot(), TorchDevice("cpu")
    before.watch(device=device)
    assert not before.changes()
    device.time = lambda calls, before=(): [0.0 for _ in calls]  # type: ignore[method-assign]
    assert before.changes() == ["device.time was replaced"]


@contextmanager
def stepped(script: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """A process of a script that prints a line and reads one, twice: once it has printed its first,
    and what lets it go on until it has printed its second."""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        send, receive = process.stdin, process.stdout

        def go_on() -> None:
            send.write(b"\n")
            send.flush()
            receive.readline()

        receive.readline()
        try:
            yield process.pid, go_on
        finally:
            process.kill()


def test_code_written_to_for_a_moment_stays_visible_from_outside(tmp_path: Path) -> None:
    script = """
import ctypes, os, sys
print(flush=True); sys.stdin.readline()
address = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
memory = os.open("/proc/self/mem", os.O_RDWR)
kept = os.pread(memory, 4, address)
os.pwrite(memory, kept, address)
print(flush=True); sys.stdin.readline()
"""
    with stepped(script) as (pid, go_on):
        before = code_pages.written(pid)
        assert not code_pages.changed(before, code_pages.written(pid))
        go_on()
        [library] = code_pages.changed(before, code_pages.written(pid))
        assert "libc" in library


def test_code_that_another_mapping_was_laid_over_is_missed() -> None:
    before = {"/lib/libc.so": code_pages.MappedCode(own=False, size=8192)}
    assert not code_pages.changed(
        before, {"/lib/libc.so": code_pages.MappedCode(own=False, size=8192)}
    )
    assert not code_pages.changed(before, {}), "a library that was closed"
    for after in (
        code_pages.MappedCode(own=False, size=4096),
        code_pages.MappedCode(own=True, size=8192),
    ):
        assert code_pages.changed(before, {"/lib/libc.so": after}) == ["/lib/libc.so"]


def test_the_system_s_own_code_is_not_closed() -> None:
    code = code_pages.MappedCode(own=False, size=8192)
    before = {"[vdso]": code, "/lib/libc.so": code}
    assert code_pages.changed(before, {"/lib/libc.so": code}) == ["[vdso]"]


def test_of_a_process_that_has_ended_nothing_is_said() -> None:
    before = {"[vdso]": code_pages.MappedCode(own=False, size=8192)}
    assert not code_pages.changed(before, {})


def test_a_handler_of_bad_accesses_is_seen_from_outside() -> None:
    script = """
import signal, sys
print(flush=True); sys.stdin.readline()
signal.signal(signal.SIGSEGV, print)
print(flush=True); sys.stdin.readline()
"""
    with stepped(script) as (pid, go_on):
        assert not code_pages.handled_faults(pid)
        go_on()
        assert code_pages.handled_faults(pid) == {"SIGSEGV"}
