"""A GPU's number means the same card wherever it is said."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from portkern.agent.feedback import outside
from portkern.evaluator.telemetry import Watch
from portkern.sandbox import session
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Session
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.toolchain import host
from portkern.worker.protocol import Reference

GPUS = [
    host.Gpu("nvidia", f"GPU {k}", "sm_90", k, "580", k, uuid)
    for k, uuid in enumerate(["GPU-aaaa", "GPU-bbbb", "GPU-cccc"])
]
FASTEST_FIRST = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


@pytest.fixture
def speed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own setting, which nvidia-smi does not follow."""
    for name, value in FASTEST_FIRST.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("speed_order")
def test_a_worker_of_a_baseline_counts_gpus_as_the_host_does() -> None:
    """The same holds for a worker of a kernel: one fork server starts both sessions."""
    session.close_servers()
    source = "import os\nraise KeyError(os.environ['CUDA_DEVICE_ORDER'])\n"
    with Session(("torch",), {}) as opened:
        outcome = opened.ask(Reference(source, device="cpu", compiled=False), timeout_s=60)
    session.close_servers()
    assert isinstance(outcome, Failed)
    assert outcome.message == "'PCI_BUS_ID'"


@pytest.mark.usefixtures("speed_order")
def test_a_profiler_counts_gpus_as_the_host_does(tmp_path: Path) -> None:
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in outside._environment({}, tmp_path)


@pytest.mark.parametrize("name", registry.BUILTIN)
def test_no_venue_counts_gpus_in_its_own_way(name: str) -> None:
    backend = registry.load(name)
    for where in filter(backend.supports, map(target.load, target.names())):
        venues = backend.venues(where)
        for venue in (venues.hardware, venues.emulator):
            assert isinstance(venue, Missing) or not host.GPU_NUMBERING.keys() & venue.environment


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-bb", [1]),
        ("", []),
        ("1,-1,0", [1]),
        ("MIG-7f", [0, 1, 2]),
    ],
)
def test_visible_gpus_are_numbered_as_a_process_sees_them(
    names: str | None, numbers: list[int]
) -> None:
    chosen = host.visible(GPUS, names)
    assert [gpu.number for gpu in chosen] == numbers
    assert [gpu.index for gpu in chosen] == list(range(len(chosen)))


def test_a_gpu_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml as nvml

    def handle(number: int) -> int:
        if number == 1:
            raise nvml.NVMLError(nvml.NVML_ERROR_GPU_IS_LOST)
        return number

    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580",
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlDeviceGetName": "GPU {}".format,
        "nvmlDeviceGetUUID": "GPU-{}".format,
    }.items():
        monkeypatch.setattr(nvml, name, answer)
    assert [(gpu.number, gpu.index) for gpu in host._nvidia()] == [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("there", "busy", "own", "told"),
    [
        ({7: "ours", 8: "theirs"}, {7: 50, 8: 40}, [7], [8]),
        ({7: "ours", 8: "theirs"}, {7: 50, 8: 0}, [7], []),
        ({7: "ours"}, {7: 50}, [7, 9], []),
        ({70: "ours by another number"}, {70: 50}, [7], []),
    ],
    ids=["works", "rests", "alone", "in a container"],
)
def test_who_else_works_on_a_gpu_is_told_where_the_driver_knows_our_own(
    there: dict[int, str],
    busy: dict[int, int],
    own: list[int],
    told: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pynvml as nvml

    samples = [SimpleNamespace(pid=pid, smUtil=used) for pid, used in busy.items()]
    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=p) for p in there],
        "nvmlDeviceGetProcessUtilization": lambda _, since: samples,
    }.items():
        monkeypatch.setattr(nvml, name, answer)
    monkeypatch.setattr(host, "gpu_for", lambda _: GPUS[0])
    assert Watch(target.load("h200")).others(own) == told


@pytest.mark.skipif("nvidia" not in [gpu.vendor for gpu in host.gpus()], reason="no NVIDIA GPU")
def test_a_process_that_works_on_the_gpu_is_seen_and_one_that_rests_is_not() -> None:
    """Ours is told by ``own``; the other multiplies matrices, or holds memory and waits."""
    program = (
        "import sys, time, torch; x = torch.rand(4096, 4096, device='cuda'); print(1, flush=True)\n"
        "while time.sleep(0.01) is None: [x @ x for _ in range(9) if sys.argv[1] == 'works']; "
        "torch.cuda.synchronize()"
    )
    where = next(target.load(name) for name in target.names() if host.gpu_for(target.load(name)))
    command = [sys.executable, "-c", program]
    with (
        subprocess.Popen([*command, "works"], stdout=subprocess.PIPE) as busy,
        subprocess.Popen([*command, "waits"], stdout=subprocess.PIPE) as idle,
    ):
        try:
            for process in (busy, idle):
                assert process.stdout
                process.stdout.readline()
            watch = Watch(where)
            time.sleep(2)
            assert watch.others([idle.pid]) == [busy.pid]
            assert watch.others([busy.pid]) == []
        finally:
            busy.kill()
            idle.kill()
