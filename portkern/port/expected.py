"""The output of a library's programs in the executor, kept for a later run on the hardware."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from portkern.errors import PortkernError
from portkern.evaluator.jailed_process import JailedProcesses, readable
from portkern.port.proof import ProofSource
from portkern.records import atomic_write
from portkern.simt.execute import runtime_library
from portkern.spec.target import Target
from portkern.worker.protocol import Execute

FOLDER = "expected"
#: A program that took longer is of no use to who waits for the proof.
_RUN_S = 20.0


def record(
    original: ProofSource, target: Target, arguments: Sequence[str], built: Path, file: Path
) -> None:
    """The original's output, as the proof has ``built`` it; no file if it does not end well."""
    program = next(built.glob(f"original-{target.arch}-fast/{original.path.stem}"), None)
    if program is None:
        return
    try:
        with readable(original.path.parent) as data:
            box = runtime_library.ready()
            with JailedProcesses([built, box.folder, data]) as processes:
                ended = processes.run(
                    Execute(
                        (str(program), *arguments),
                        str(data),
                        str(target),
                        original.language,
                        (),
                        _RUN_S,
                    )
                ).program
    except (PortkernError, OSError):
        return
    if ended.status == 0:
        atomic_write.write(file, ended.output)
