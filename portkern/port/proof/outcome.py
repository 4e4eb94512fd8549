"""The request for a proof and its limits, and the outcome for each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute.machine import Language
from portkern.spec.target import Target
from portkern.toolchain.source_view import SourceView


class Outcome(StrEnum):
    PROVEN = "proven in emulation"
    NEEDS_HARDWARE = "needs hardware"
    NEEDS_HUMAN = "needs a human"
    WRONG = "wrong"
    UNPROVEN = "not proven"


#: Why a program says nothing of a kernel.
NOT_LAUNCHED = "the program does not launch it"
#: Why nothing is known of a kernel whose program does not compile.
NO_CASE = "case is not built"
#: Why nothing is said of a launch that the original's GPU does not run.
ORIGINAL_FAILED = "the original's launch failed"
#: How the reason begins why nothing is said of a program that goes wrong on a larger GPU.
MORE_UNITS = "with more multiprocessors"
#: Reasons that other inputs would only hide.
FINAL = (ORIGINAL_FAILED, MORE_UNITS)
#: Why a run does, in which everything stays as it was.
WROTE_NOTHING = "it wrote no buffer"


@dataclass(frozen=True)
class ProofSource:
    """One text of a program or of a file of kernels. ``further`` are its other files, ``include``
    folders of headers, ``defines`` macros, as ``-D`` takes them. Compilers see all of ``whole``:
    its tree and what the user names; of ``include`` the headers alone."""

    path: Path
    language: Language
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    further: tuple[Path, ...] = ()
    whole: tuple[Path, ...] = ()

    @property
    def view(self) -> SourceView:
        return SourceView.of((self.path, *self.further), self.whole, self.include)


@dataclass(frozen=True)
class ProofLimits:
    """``run_s`` is for each run of a program, ``build_s`` for each file. ``arguments`` are those of
    whole programs, ``smaller`` others for a program that does not end with them. ``record_bytes``:
    contents of buffers that a recording holds; what is beyond is compared by its digest. For
    ``objects``, AMD's GPUs, the port is executed as it is compiled for them, too. ``ring``: both
    are run on elements of a ring as well."""

    run_s: float = 60.0
    build_s: float = 180.0
    arguments: tuple[str, ...] = ()
    smaller: tuple[tuple[str, ...], ...] = ()
    record_bytes: int = 64 << 20
    objects: tuple[Target, ...] = ()
    ring: bool = False


class ByAlgebra(StrEnum):
    EQUAL = "equal by algebra"
    DIFFERENT = "different by algebra"
    UNKNOWN = "algebra cannot say"


@dataclass(frozen=True)
class Algebra:
    """The verdict of two runs on elements of a ring, and what it rests on, or why."""

    verdict: ByAlgebra
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}" if self.why else str(self.verdict)


@dataclass(frozen=True)
class TextCoverage:
    """How much of a kernel's text its inputs reached; ``total`` is what there is."""

    lines: int
    lines_total: int
    branches: int
    branches_total: int

    @property
    def part(self) -> float:
        """The part of the branches that was reached; of the lines where there are no branches."""
        if self.branches_total:
            return self.branches / self.branches_total
        return self.lines / self.lines_total if self.lines_total else 0.0

    def __str__(self) -> str:
        return (
            f"{self.lines} of {self.lines_total} lines, "
            f"{self.branches} of {self.branches_total} branches"
        )


@dataclass(frozen=True)
class KernelProof:
    """``path`` and ``line`` are the ported kernel's. ``findings`` are the port's own,
    ``original_findings`` the original's, which the port may share. ``counterexample`` is one file,
    ``command`` what runs it, or the program, again. ``idle`` are the instances that the program
    has and its run did not launch, by their arguments; None where that is not known."""

    kernel: str
    path: Path
    line: int
    outcome: Outcome
    why: str
    inputs: str = ""
    coverage: TextCoverage | None = None
    findings: tuple[Diagnostic, ...] = ()
    original_findings: tuple[Diagnostic, ...] = ()
    counterexample: Path | None = None
    command: str = ""
    algebra: Algebra | None = None
    idle: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kernel}: {self.outcome}" + (
            f" ({self.why})" if self.why else ""
        )


@dataclass(frozen=True)
class Refused:
    """Why no case can be made up. ``hardware``: nor could the executor run one."""

    reason: str
    hardware: bool = False
