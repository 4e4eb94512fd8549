"""Outputs of timed calls are what lies in memory when a round ends; inputs are drawn for each."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import inputs, processor_time, standstill
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Verdict
from portkern.sandbox.shared_memory import SharedMemory, SharedMemoryView
from portkern.spec import registry
from portkern.spec.backend import Buffer, Call, Kernel, Missing
from portkern.spec.candidate import Candidate
from portkern.spec.op import ITEMSIZE, Op, Workload
from portkern.spec.target import load
from portkern.testing import QUICK, evaluate
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import counter_values, masks, protocol
from portkern.worker.worker import Worker

from .kernels import RIGHT, relu

CPU = registry.load("cpu")
HOST = load(host_targets()[0])
RELU = ops.load("relu")
PLAN = replace(QUICK, plan=TimingPlan(rounds=2, budget_s=0.0, patient=False))
#: One round, and none whose inputs are nearly those of the one before.
ONE_ROUND = replace(PLAN, plan=replace(PLAN.plan, rounds=1), distributions=(inputs.BASE,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def ending(
    candidate: Candidate,
    folder: Path,
    options: TrialOptions = PLAN,
    op: Op = RELU,
    n: int = 3000,
) -> Result:
    work = Workload("one", {"n": n})
    results = evaluate(candidate, op, CPU, HOST, [work], folder=folder, options=options)
    assert isinstance(results, list), results
    return results[0]


#: Calls beyond those that are evaluated leave their work for later.
OWES = (
    "struct Call { const scalar_t* x; scalar_t* y; int64_t n; }; static Call owed[4096]; "
    "static int calls, count; auto work = [](Call c) "
    "{ for (int64_t i = 0; i < c.n; ++i) c.y[i] = c.x[i] < 0 ? scalar_t(0) : c.x[i]; }; "
    "if (++calls < 14) { work({x, y, n}); return 0; } "
)
LATER = {
    "by a thread that waits for the clock to stop": OWES
    + "if (count < 4096) owed[count++] = {x, y, n}; static std::atomic<long> last; "
    "last = calls; static bool once = (std::thread([=] { for (;;) { long was = last; "
    "usleep(30000); if (was == last) while (count) work(owed[--count]); } }).detach(), true); "
    "(void)once; return 0;",
    "by the next call": OWES
    + "if (count) work(owed[--count]); owed[count++] = {x, y, n}; return 0;",
    "where its memory is looked at by itself": OWES
    + "void* at = (void*)((size_t)y & ~4095ul); static scalar_t* own; own = y; "
    "mmap(at, (n * 4 + 8191) & ~4095ul, PROT_READ | PROT_WRITE, "
    "MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); work({x, y, n}); return 0;",
}


@pytest.mark.sampled()
@pytest.mark.parametrize("body", LATER.values(), ids=LATER)
def test_an_output_that_is_computed_after_the_round_is_not_there(body: str, folder: Path) -> None:
    found = ending(relu(body.replace("#include", "")), folder)
    assert found.verdict in (Verdict.WRONG, Verdict.SUSPICIOUS), found
    assert found.samples is None


#: Answers as an earlier call did whose input looks the same at KEYS places.
TABLE = (
    "static std::map<std::vector<float>, std::vector<float>> known; static int calls; "
    "std::vector<float> key; for (long i = 0; i < KEYS; ++i) "
    "key.push_back(x[(n - 1) * i / (KEYS - 1)]); "
    "if (++calls > 14 && known.count(key) && (long)known[key].size() == n) "
    "{ memcpy(y, known[key].data(), n * 4); return 0; } "
    "for (long i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i]; "
    "if (calls > 14) known[key].assign(y, y + n); return 0;"
)


@pytest.mark.parametrize("keys", [2, 9])
def test_a_table_by_a_few_elements_is_wrong_at_sizes_that_are_looked_at_in_part(
    keys: int, folder: Path
) -> None:
    candidate = relu(TABLE.replace("KEYS", str(keys)))
    text = "#include <map>\n#include <string.h>\n#include <vector>\n" + candidate.source
    found = ending(replace(candidate, source=text), folder, n=150_000)
    assert found.verdict is Verdict.WRONG and "in a timed call" in found.detail, found


RETURNS = """
import threading, time
import torch

calls = 0

def relu(x):
    global calls
    calls += 1
    y = torch.full_like(x, 3.0)
    def work():
        torch.clamp(x, min=0, out=y)
    if {late} and calls > 13:
        threading.Timer(0.02, work).start()
    else:
        work()
    return y
"""


@pytest.mark.parametrize("late", [False, True])
def test_tensors_that_a_kernel_returns_are_read_where_they_lie(late: bool, folder: Path) -> None:
    source = RETURNS.format(late=late)
    candidate = Candidate("relu", "cpu", "numba", source, entry="relu", style="return")
    results = evaluate(
        candidate,
        RELU,
        CPU,
        HOST,
        [Workload("one", {"n": 3000})],
        folder=folder,
        options=PLAN,
        torch_ops="allow",
    )
    assert isinstance(results, list), results
    assert results[0].verdict is (Verdict.WRONG if late else Verdict.PASSED), results[0]


#: The next call, or a thread, does the work of a call that is timed.
IN_OPENCL = """
import threading
SOURCE = '''
kernel void r(global const float* x, global float* y) {{
  y[get_global_id(0)] = fmax(x[get_global_id(0)], 0.0f);
}}
'''
calls, owed = 0, []

def relu(queue, program, x, y, *, n):
    global calls
    calls += 1
    if calls < 14:
        program.r(queue, (n,), None, x, y)
        return
    {later}
"""


@pytest.mark.sampled()
@pytest.mark.parametrize(
    "later",
    [
        "owed and program.r(queue, (n,), None, *owed.pop()); owed.append((x, y))",
        "threading.Timer(0.02, lambda: program.r(queue, (n,), None, x, y)).start()",
    ],
    ids=["by the next call", "by a thread"],
)
def test_a_buffer_of_opencl_is_read_where_it_lies(later: str, folder: Path) -> None:
    backend, where = registry.load("opencl"), load("opencl_generic")
    if isinstance(missing := backend.probe(where), Missing):
        pytest.skip(str(missing))
    candidate = Candidate("relu", "opencl", "opencl", IN_OPENCL.format(later=later), entry="relu")
    results = evaluate(
        candidate,
        RELU,
        backend,
        where,
        [Workload("one", {"n": 3000})],
        folder=folder,
        options=PLAN,
    )
    assert isinstance(results, list), results
    assert results[0].verdict in (Verdict.WRONG, Verdict.SUSPICIOUS), results[0]


#: Whether a call's input is an earlier one's: the same, scaled, or at other places.
KNOWN = {
    "the same": "memcmp(x, seen[k], n * 4) == 0",
    "scaled": "[&] { double f = double(x[0]) / seen[k][0]; for (int64_t i = 1; i < n; ++i) "
    "if (fabs(x[i] - f * seen[k][i]) > 1e-5 * fabs(x[i])) return false; return true; }()",
    "at other places": "[&] { std::vector<float> a(x, x + n), b(seen[k], seen[k] + n); "
    "for (auto* v : {&a, &b}) { for (auto& e : *v) e = fabsf(e); "
    "std::sort(v->begin(), v->end()); } "
    "float f = a[n - 1] / b[n - 1]; for (int64_t i = 0; i < n; ++i) "
    "if (fabsf(a[i] - f * b[i]) > 1e-5f * a[i]) return false; return true; }()",
}


@pytest.mark.sampled()
@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_no_timed_input_is_one_of_before_in_another_guise(known: str, folder: Path) -> None:
    """The inputs are those drawn for each call; adversaries' inputs are repeated by design."""
    body = (
        "static int calls; static float seen[16][4096]; "
        f"if (++calls > 3) for (int k = 3; k < calls && k < 16; ++k) if (seen[k][0] && {known}) "
        "{ memset(y, 0, n * 4); return 0; } "
        "memcpy(seen[calls % 16], x, n * 4); "
    )
    candidate = relu(body + RIGHT)
    source = "#include <algorithm>\n#include <vector>\n" + candidate.source
    usual = replace(RELU, adversaries={})
    found = ending(replace(candidate, source=source), folder, ONE_ROUND, usual)
    assert found.verdict is Verdict.PASSED, found


def test_nothing_of_a_worker_runs_while_its_outputs_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from portkern.evaluator.timed_buffers import RoundMemory

    stopped = []
    real, go_on, read = standstill.stop, standstill.go_on, RoundMemory.whole

    def watched(pid: int, known: Iterable[int] = ()) -> Collection[int]:
        members = real(pid, known)
        assert members
        stopped.append(pid)
        return members

    def resumed(pid: int, members: Collection[int] = ()) -> None:
        go_on(pid, members)
        if pid in stopped:
            stopped.remove(pid)

    def whole(self: RoundMemory, call: int) -> list[torch.Tensor]:
        assert stopped
        for member in processor_time.family(stopped[-1]):
            assert set(processor_time.thread_states(member)) <= standstill.STOPPED
        return read(self, call)

    monkeypatch.setattr(standstill, "stop", watched)
    monkeypatch.setattr(standstill, "go_on", resumed)
    monkeypatch.setattr(RoundMemory, "whole", whole)
    spinning = "static bool once = (std::thread([] { for (;;) usleep(5000); }).detach(), true); "
    assert ending(relu(f"{spinning}(void)once; {RIGHT}"), folder).verdict is Verdict.PASSED
    assert not stopped


def test_who_runs_once_it_stands_still_is_found_before_a_look_at_its_outputs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let go by another, and stands still again when its outputs are looked at."""
    standing: list[int] = []
    stop, of_family = standstill.stop, processor_time.of_family

    def noted(pid: int, known: Iterable[int] = ()) -> Collection[int]:
        standing[:] = stop(pid, known)
        return standing

    def read(pid: int, known: Collection[int] = ()) -> processor_time.ProcessorTime:
        if standing and known is standing:
            standstill.go_on(pid, standing)
            time.sleep(0.1)
            assert stop(pid, standing)
        return of_family(pid, known)

    monkeypatch.setattr(standstill, "stop", noted)
    monkeypatch.setattr(processor_time, "of_family", read)
    waking = "static bool once = (std::thread([] { for (;;) usleep(500); }).detach(), true); "
    found = ending(relu(f"{waking}(void)once; {RIGHT}"), folder)
    assert found.verdict is Verdict.SUSPICIOUS
    assert "it ran on while its outputs were looked at" in found.detail


# ---- what is drawn


def draws(op: Op, **dims: int) -> tuple[TimedDraws, TimedInputs]:
    work = Workload("one", dims)
    base = inputs.draw(op, work, "float32", inputs.BASE)
    made = TimedDraws(op, work, "float32", [(inputs.BASE, base)])
    return made, TimedInputs.drawn(random.SystemRandom(), structured=False)


@pytest.mark.parametrize(
    ("op", "dims"),
    [
        ("matmul", {"m": 3, "n": 5, "k": 7}),
        ("cross_entropy", {"rows": 9, "classes": 11}),
        ("relu", {"n": 0}),
    ],
)
def test_a_call_that_is_looked_at_is_made_once_more_as_it_was(
    op: str, dims: dict[str, int]
) -> None:
    made, now = draws(ops.load(op), **dims)
    for one in (now, now.near(random.SystemRandom())):
        blocks = made.of_round(one, 4)
        for call in range(4):
            again = made.of_call(one, call)
            for block, tensor, base in zip(blocks, again, made.bases[0][1], strict=True):
                assert torch.equal(block[call + 1], tensor.flatten())
                assert (tensor.shape, tensor.dtype) == (base.shape, base.dtype)


def test_a_round_near_another_has_the_same_draws_but_for_a_few_elements() -> None:
    made, first = draws(RELU, n=6400)
    second = first.near(random.SystemRandom())
    third = TimedInputs.drawn(random.SystemRandom(), structured=False)
    [one], [two], [three] = (made.of_call(now, 0) for now in (first, second, third))
    assert 0 < int((one != two).sum()) <= 16
    assert int((two != three).sum()) > 6000


@pytest.mark.parametrize("kind", [*ITEMSIZE, "float8_e4m3fn", "complex64", "complex128"])
def test_a_mask_flips_half_of_all_bits_and_comes_off_without_a_trace(kind: str) -> None:
    dtype = getattr(torch, kind)
    open_ = torch.randint(0, 256, (4001, dtype.itemsize), dtype=torch.uint8)
    held = open_.clone().view(dtype)
    version = held._version
    masks.mask([held], 7)
    flipped = (held.view(torch.uint8) ^ open_).view(4001, -1, 1) >> torch.arange(8) & 1
    often = flipped.double().mean(0)
    assert 0.45 < float(often.min()) <= float(often.max()) < 0.55, "6.3 standard deviations"
    masks.mask([held], 7)
    assert torch.equal(held.view(torch.uint8), open_)
    assert held._version == version
    masks.mask([torch.empty(0, dtype=held.dtype)], 7)


def test_masks_of_a_calls_inputs_and_of_other_calls_differ() -> None:
    hidden = [torch.zeros(4000, dtype=torch.uint8) for _ in range(4)]
    masks.mask(hidden[:2], 1 << 40)
    masks.mask(hidden[2:], 1 << 41 | 5)
    for one, other in combinations(hidden, 2):
        assert int((one == other).sum()) < 80  # of 16 that chance makes


class NothingBefore(TorchDevice):
    """A plugin's device, which knows nothing of what is to be done before a call."""

    def synchronize(self) -> None: ...

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:  # type: ignore[override]
        return self._time_cpu(calls)


@pytest.mark.parametrize("gpu", [False, True])
def test_a_device_that_takes_no_mask_off_sees_open_inputs(
    gpu: bool,
) -> None:
    memory, calls = SharedMemory(), 3
    [inputs_, outputs_] = (memory.rows((5, 3), "float32", calls + 1) for _ in range(2))
    keys = (11, 22, 33, 44)
    for number, key in enumerate(keys):
        row = memory.look(inputs_.row(number)).fill_(number)
        masks.mask([row], key)
    device = NothingBefore("cpu") if gpu else TorchDevice("cpu")
    held = Worker(SharedMemoryView(memory.handle))
    held._host = TorchDevice("cpu")
    seen: list[float] = []
    device.gpu = gpu

    def launch(call: Call) -> Sequence[Buffer]:
        seen.append(float(call.inputs[0].sum()))
        return call.outputs

    held._kernel = Kernel(device, launch)
    held.place(protocol.Place((inputs_,), (outputs_,), calls, {}, {}, keys))
    held.time()
    assert seen == [15.0 * number for number in range(calls + 1)]


def test_every_second_call_shares_a_part_with_the_one_before() -> None:
    made, now = draws(RELU, n=6400)
    [block] = made.of_round(now, 40)
    ends = 0
    for call in range(0, 40, 2):
        before, one, after = block[call], block[call + 1], block[call + 2]
        own = (before != one).nonzero().flatten()
        apart = own.diff().tolist()
        # Two normal numbers of float32 are the same once in fifty million.
        assert 799 <= len(own) <= 1600 and len(set(apart)) > 5, "they lie in a pattern"
        assert sum(gap >= 16 for gap in apart) < 2, "rows of sixteen are as they were"
        assert int((one == after).sum()) < 10
        ends += bool(before[0] == one[0] and before[-1] == one[-1])
    # Both are shared by 0.68 of them on average: by fewer than three of twenty once in 8 million.
    assert ends > 2


def test_places_where_a_near_round_differs_are_known() -> None:
    made, now = draws(ops.load("matmul"), m=60, n=50, k=40)
    near = now.near(random.SystemRandom())
    for call in range(3):
        pairs = zip(made.of_call(now, call), made.of_call(near, call), strict=True)
        for (one, two), (begin, end) in zip(pairs, made.changed(near, call), strict=True):
            changed = (one != two).flatten().nonzero().flatten()
            assert [int(changed[0]), int(changed[-1])] == [
                round(begin * one.numel()),
                round(end * one.numel()) - 1,
            ]
    assert not made.changed(now, 0)


def test_indices_are_drawn_within_their_bounds() -> None:
    made, now = draws(ops.load("cross_entropy"), rows=500, classes=7)
    targets = made.of_call(now, 0)[1]
    assert set(targets.tolist()) == set(range(7))


@given(st.integers(0, 2**62), st.integers(1, 300), st.integers(0, 2**33))
def test_any_part_of_a_sequence_is_made_without_the_rest(seed: int, size: int, start: int) -> None:
    whole, part = torch.empty(size), torch.empty(size - size // 3)
    counter_values.normal(whole, str(seed), start)
    counter_values.normal(part, str(seed), start + size // 3)
    assert torch.equal(whole[size // 3 :], part)


def test_values_are_nearly_normal_and_those_of_two_seeds_have_nothing_in_common() -> None:
    one, two = torch.empty(1 << 18), torch.empty(1 << 18)
    counter_values.normal(one, "1")
    counter_values.normal(two, "2")
    for values in (one, two):
        assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
        assert len(set(values.tolist())) > 0.98 * len(values)
    assert abs((one * two).mean()) < 0.01 and abs((one[1:] * one[:-1]).mean()) < 0.01
    common = Counter(one.tolist()) & Counter(two.tolist())
    assert sum(common.values()) < 0.05 * len(one)


# ---- where they lie


def test_rows_of_a_block_lie_apart_and_at_lines_of_the_caches() -> None:
    with SharedMemory() as memory:
        memory.slot((10,), "uint8")
        rows = memory.rows((3, 5), "bfloat16", 4)
        memory.block(rows, 4).copy_(torch.arange(60).view(4, 15))
        for number in range(4):
            slot = rows.row(number)
            assert slot.offset % 64 == 0
            assert memory.take(slot).flatten().tolist() == list(
                range(15 * number, 15 * number + 15)
            )
        assert rows.row(1).offset - rows.row(0).offset >= rows.row(0).nbytes + 64
        memory.release()
        assert not memory.take(rows.row(2)).any()


def test_who_wakes_by_himself_has_run() -> None:
    import subprocess
    import sys

    code = (
        "import os, signal, time\n"
        "if not os.fork():\n"
        "    while True: time.sleep(0.05); os.kill(os.getppid(), signal.SIGCONT)\n"
        "while True: pass"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as running:
        while len(list(processor_time.family(running.pid))) < 2:
            time.sleep(0.01)
        waking = list(processor_time.family(running.pid))[1]
        try:
            for pid, wakes in ((running.pid, False), (waking, True)):
                assert standstill.stop(running.pid)
                before = processor_time.ran_s(running.pid)
                if wakes:
                    standstill._signal(pid, 18)
                time.sleep(0.2)
                assert standstill.woke(running.pid, before) is wakes
        finally:
            for member in (waking, running.pid):
                standstill._signal(member, 9)


def test_who_wakes_for_a_moment_to_start_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of C takes some 20 µs to clone itself, less than one that was stopped may run."""
    import subprocess
    import sys

    monkeypatch.setattr(standstill, "LEAVING_S", 10.0)
    code = "import os, signal, time; signal.signal(signal.SIGCONT, lambda *_: os.fork()); print(1, "
    code += "flush=True)\nwhile True: time.sleep(60)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline()
        try:
            stopped = standstill.stop(running.pid)
            before = processor_time.ran_s(running.pid, stopped)
            assert not standstill.woke(running.pid, before, stopped)
            standstill._signal(running.pid, 18)
            while len(list(processor_time.family(running.pid))) < 2:
                time.sleep(0.01)
            assert standstill.woke(running.pid, before, stopped)
        finally:
            for member in reversed(list(processor_time.family(running.pid))):
                standstill._signal(member, 9)


def test_a_stop_is_quick_and_leaves_nothing_running() -> None:
    import subprocess
    import sys

    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while 1: pass'])"
    with subprocess.Popen([sys.executable, "-c", code]) as running:
        while len(list(processor_time.family(running.pid))) < 2:
            time.sleep(0.01)
        members = list(processor_time.family(running.pid))
        try:
            assert standstill.stop(running.pid, members)
            before = processor_time.ran_s(running.pid)
            time.sleep(0.05)
            assert processor_time.ran_s(running.pid) == before
        finally:
            for member in members:
                standstill._signal(member, 9)
