"""A program of others in a box of its own, with the network: a coding agent, say.

It is started in an empty folder of a jail of its own; files that it is given are written there, and
one that it leaves there is kept. It has a user of its own where the caller is root, sees the
system's folders and those that are named, and ends with all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from portkern.sandbox import jail
from portkern.sandbox.jail.control_groups import ControlGroup
from portkern.sandbox.jail.limits import ProcessLimits
from portkern.sandbox.jail.programs import read_plain
from portkern.spec.foreign_text import json_value
from portkern.toolchain.run_tool import cache_root

#: The program's folder in the jail; all that it writes has so much room together.
FOLDER, MOST_BYTES = Path("/tmp/work"), 256 << 20
#: What names are looked up and certificates are checked by.
_NETWORK = ("resolv.conf", "hosts", "nsswitch.conf", "ssl", "ca-certificates", "pki", "gai.conf")
#: Told when its box is made.
_BEGUN = b"begun"
#: After its time is over, until its box has to be closed.
_CLOSING_S = 20.0
#: Tasks that it may have, beside those of its user.
_TASKS = 512


@dataclass(frozen=True)
class Tenant:
    """``argv`` runs for ``timeout_s`` with this ``environment`` and no other. ``files`` are written
    into its folder; of ``wanted``, a name there, so many bytes are kept as ``most_kept`` says.
    ``sees`` are further folders and files of this machine that it may read."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    wanted: str
    timeout_s: float
    sees: tuple[str, ...] = ()
    most_kept: int = 1 << 20


@dataclass(frozen=True)
class Gone:
    """``output`` is what it wrote to its standard streams, up to a limit, ``kept`` the file that
    was wanted. ``problem`` says why it was not started."""

    output: bytes
    kept: bytes | None
    late: bool = False
    problem: str = ""


def run(tenant: Tenant, most_output: int = 1 << 20) -> Gone:
    """Runs a tenant until it ends, or its time is over."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", __name__, str(writing)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[writing],
        start_new_session=True,
        cwd="/",
        env={name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        | {"PORTKERN_CACHE_DIR": str(cache_root())},
    ) as process:
        os.close(writing)
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(asdict(tenant)).encode())
        process.stdin.close()
        closing = _at_last(process, tenant.timeout_s + _CLOSING_S)
        output = _beginning(process.stdout.fileno(), most_output)
        with os.fdopen(reading, "rb") as told:
            said = told.read(tenant.most_kept + 4096)
        process.wait()
        closing.cancel()
    begun, _, rest = said.partition(b"\n")
    head, _, kept = rest.partition(b"\n")
    if begun != _BEGUN:
        return Gone(output, None, problem=begun.decode(errors="replace") or "its box was not made")
    try:
        answer = json_value(head)
    except ValueError:  # it has ended its own keeper
        answer = None
    if not isinstance(answer, dict):
        return Gone(output, None)
    problem, late = str(answer.get("problem", "")), answer.get("late") is True
    return Gone(output, kept if answer.get("kept") is True else None, late, problem)


def _at_last(process: subprocess.Popen[bytes], seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    return timer


def _beginning(handle: int, most: int) -> bytes:
    """All is read, so that nobody waits to write it."""
    kept = bytearray()
    while chunk := os.read(handle, 1 << 16):
        kept += chunk[: most - len(kept)]
    return bytes(kept)


# ---- in the box


def main() -> None:
    """The keeper of the box: confines itself, starts the program, and tells what it left."""
    told = int(sys.argv[1])
    os.set_inheritable(told, False)
    tenant = Tenant(**json_value(sys.stdin.buffer.read()))
    limits = ProcessLimits.of_this_machine()
    limits = ProcessLimits(limits.memory_bytes, MOST_BYTES, _TASKS, cpu_s=int(tenant.timeout_s) + 1)
    layers = jail.probe()
    if "namespaces" not in layers.active:
        os.write(told, f"no box for it: {layers.missing['namespaces']}".encode())
        return
    group = ControlGroup.create(limits) if "cgroup" in layers.active else None
    keeper = os.fork()
    if keeper:
        os.close(told)
        os.waitpid(keeper, 0)
        if group:
            group.remove()
        return
    if group:
        group.add(os.getpid())
    reads = [*(Path("/etc") / name for name in _NETWORK), *map(Path, tenant.sees)]
    policy = jail.JailPolicy(
        FOLDER, reads=tuple(reads), tenant=True, scratch_bytes=MOST_BYTES, limits=limits
    )
    try:
        jail.confine(policy, layers, grouped=group is not None)
    except OSError as error:
        os.write(told, str(error).encode(errors="replace"))
        os._exit(1)
    os.write(told, _BEGUN + b"\n")  # from here on it may be killed by what it keeps
    kept, head = None, dict[str, object]()
    try:
        head["late"] = _lived(_started(tenant), tenant.timeout_s)
        kept = read_plain(FOLDER / tenant.wanted, tenant.most_kept)
    except OSError as error:
        head["problem"] = str(error)
    with os.fdopen(told, "wb") as pipe:
        pipe.write(json.dumps({**head, "kept": kept is not None}).encode() + b"\n" + (kept or b""))
    os._exit(0)


def _started(tenant: Tenant) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    FOLDER.chmod(0o700)
    for name, text in tenant.files.items():
        place = FOLDER / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    environment = {**tenant.environment, "HOME": str(FOLDER), "TMPDIR": "/tmp"}
    return subprocess.Popen(
        tenant.argv, cwd=FOLDER, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _lived(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether its time was over before it ended. Nothing of it runs afterwards."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return True
    finally:
        with suppress(ProcessLookupError):  # all but this process and the first of its namespace
            os.kill(-1, signal.SIGKILL)
        process.wait()
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    main()
