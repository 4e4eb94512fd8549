"""The errors that portkern raises, by whose fault they are.

* PortkernError
  - ConfigError          the user asked for something that does not exist or does not fit
  - RecordError          a results file cannot be read
  - StorageError         a disk is full, or a file cannot be written
  - WorkerError          no worker can be started
  - BackendUnavailable   this machine lacks the toolchain or the device
  - ToolError            a tool failed, could not start or ran out of time
    + BuildError         the toolchain rejected the candidate
      * BuildTimeout     or did not come to an end
  - LaunchError          a kernel's entry point did not return 0
    + LaunchTimeout      because its time was over
    + NeedsHardware      because what executes objects has no model of an instruction
  - ModelError           no language model answers a call
  - ModelDown            a language model's service is away for now
  - ReferenceFailed      an imported operator's reference gives no answer
  - MachineUnfit         this machine cannot evaluate anything now
  - BudgetSpent          what is asked for could use more than the run may
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from pathlib import Path


class PortkernError(Exception):
    """Anything portkern says to its user in one line; ``exit_code`` is the process's."""

    exit_code = 1


class ConfigError(PortkernError):
    """The request cannot be carried out as written."""

    exit_code = 2


class RecordError(PortkernError):
    """A results file is not what portkern writes."""

    exit_code = 2


class UnreadableRecords(RecordError):
    """A results file cannot be read: it is a folder, a device, or somebody else's."""

    exit_code = 3


class StorageError(PortkernError):
    """Raised when something that must be kept cannot be written."""

    exit_code = 3

    @classmethod
    def of(cls, error: OSError, path: Path) -> StorageError:
        """The error in one line, with the remedy."""
        reason = error.strerror or str(error)
        remedy = "choose a place that can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "make room there, then run the same again: what is recorded is kept"
        return cls(f"Cannot write {path}: {reason}; {remedy}")


class WorkerError(PortkernError):
    """The jail's processes do not start."""

    exit_code = 3


class BackendUnavailable(PortkernError):
    """A toolchain or a device that was asked for by name is not on this machine."""

    exit_code = 3


class ToolError(PortkernError):
    """A tool failed; ``log`` is what it printed, ``status`` what it exited with, None where it did
    not come to that."""

    def __init__(self, message: str, *, log: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.log, self.status = log, status


class BuildError(ToolError):
    """The toolchain rejected the candidate."""


class BuildTimeout(BuildError):
    """The toolchain was ended when its time was over."""


class LaunchError(PortkernError):
    """The entry point returned something other than 0."""


class LaunchTimeout(LaunchError):
    """The kernel was ended when its time was over."""


class NeedsHardware(LaunchError):
    """The kernel has not been judged: it was stopped where the processor's model ends."""


class ModelError(PortkernError):
    """No model answered a call; ``final`` when none would answer the next one either, such as
    without a key."""

    exit_code = 3

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class ModelDown(PortkernError):
    """A service was asked as often as was allowed, and may answer later. Not a ModelError, which is
    about one call and costs a run one attempt: this one stops it, to go on from there."""

    exit_code = 3


class ReferenceFailed(PortkernError):
    """Raised when the reference of an imported operator raised, ended or gave something else."""

    exit_code = 3


class MachineUnfit(PortkernError):
    """It is short of processes or memory, or its device is out of order: no kernel's fault, which
    costs a run nothing and stops it, to go on from there."""

    exit_code = 3


class BudgetSpent(PortkernError):
    """A limit of the run is reached, or the next step could go beyond it."""

    exit_code = 3


def no_such(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not there: the closest known name, or all of them."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"available: {', '.join(options) or 'none'}"
    return ConfigError(f"No {kind} {name!r}; {hint}")
