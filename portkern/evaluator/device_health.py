"""Whether devices still compute, asked when a kernel has crashed or hung on one.

An illegal access ends with its process; a driver that is out of order fails whatever comes next,
which is then no kernel's fault.
"""

from __future__ import annotations

import threading
import time

from portkern.errors import StorageError, WorkerError
from portkern.sandbox.session import Answered, Lost, Session, TimedOut
from portkern.worker import protocol

TIMEOUT_S = 60.0
#: A driver needs a while to clear up behind a kernel that hung.
ATTEMPTS, PAUSE_S = 3, 5.0
_KNOWN = "def run(x):\n    return (x * x).sum().reshape(1)\n"
_SIZE = 4096


class Devices:
    """The problems of devices that are known in one run, by their names in torch; thread-safe."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()

    def problem(self, device: str) -> str:
        """Why nothing is to be run on ``device`` any more; '' as far as is known."""
        return self._problems.get(device, "")

    def check(self, device: str) -> str:
        """The same after a look at the device. One that has failed is not tried again."""
        with self._lock:
            if device not in self._problems:
                said = ""
                for attempt in range(ATTEMPTS):
                    time.sleep(PAUSE_S if attempt else 0.0)
                    said = device_fault(device)
                    if not said:
                        return ""
                self._problems[device] = (
                    f"the health check of {device} failed after a crash or a time-out: {said}; "
                    "see what the driver logged (dmesg), reset the device, then run again"
                )
            return self._problems[device]


def device_fault(device: str, *, timeout_s: float = TIMEOUT_S) -> str:
    """The fault that a fresh worker meets in a small known computation on the device; '' when
    there is none."""
    try:
        with Session(("torch",), {}, device=device != "cpu") as session:
            known = protocol.Reference(_KNOWN, device, compiled=False)
            opened = session.ask(known, timeout_s=timeout_s)
            if not isinstance(opened, Answered):
                return _said(opened)
            return _wrong(session, timeout_s)
    except (WorkerError, StorageError) as error:
        return str(error)


def _wrong(session: Session, timeout_s: float) -> str:
    import torch

    memory, numbers = session.memory, torch.arange(_SIZE, dtype=torch.int64)
    given, after = memory.put(numbers), memory.put(numbers)
    output = torch.zeros(1, dtype=torch.int64)
    result, block = memory.put(output), memory.put(output.view(torch.uint8))
    guard = memory.slot((0,), "uint8")
    asked = protocol.Run((given,), (block,), (result,), (after,), (guard,), {}, {}, traced=False)
    outcome = session.ask(asked, timeout_s=timeout_s)
    if not isinstance(outcome, Answered):
        return _said(outcome)
    got, expected = int(memory.take(result)), sum(n * n for n in range(_SIZE))
    return "" if got == expected else f"it computed {got}, expected {expected}"


def _said(outcome: Lost) -> str:
    if isinstance(outcome, TimedOut):
        return f"no answer within {outcome.limit_s:g} s"
    message = getattr(outcome, "message", "") or str(outcome)
    return message.partition("\n")[0]
