"""Numbered diagnostics of the SIMT executor: what was found, where, and what to do about it.

Build-time codes (SX0xx) come from the rewriter; all others from a run, as JSON lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject


class Severity(StrEnum):
    """``error`` evaluates the kernel; a ``note`` says where it is not portable or not checked."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Code:
    """One kind of defect: ``title`` names it, ``remedy`` says what usually mends it."""

    title: str
    remedy: str
    severity: Severity = Severity.ERROR


_NOTE, _WARNING = Severity.NOTE, Severity.WARNING

CODES: dict[str, Code] = {
    # -- not modelled, or not a kernel: found while rewriting
    "SX001": Code("inline assembly that is not modelled", "use the intrinsic, or plain C++"),
    "SX002": Code("an asynchronous copy without a model", "use PTX, tiles and mbarriers"),
    "SX003": Code("textures or surfaces", "use plain loads"),
    "SX004": Code("CuTe or CUTLASS", "write the tiles out"),
    "SX005": Code("a library header without a model", "keep to the runtime API, cub and cuBLAS"),
    "SX006": Code("a kernel launched from a kernel", "launch from the host"),
    "SX007": Code("a launch that cannot be parsed", "write kernel<<<grid, block>>>(arguments)"),
    "SX008": Code("main() in a library", "export the entry point instead"),
    "SX009": Code("thread-block clusters or distributed shared memory", "use one block's memory"),
    "SX010": Code("a matrix instruction without a model", "use mma.sync or dense wgmma"),
    "SX011": Code("a __shared__ declaration that cannot be parsed", "declare it on its own"),
    "SX012": Code("a name of CUDA, HIP or PyTorch without a model", "see the message"),
    "SX013": Code("a header that is not on this machine", "install it, or name its folder by -I"),
    "SX014": Code("a function that no source defines", "name the file that does, or see SX012"),
    # -- memory
    "SX101": Code("access outside a global buffer", "check the index against the size"),
    "SX102": Code("access outside shared memory", "check the index against the array's size"),
    "SX103": Code("access outside a local array", "check the index against the array's size"),
    "SX104": Code("access to memory that is not the device's", "pass device pointers to kernels"),
    "SX105": Code("access to freed memory", "free after the last use"),
    "SX106": Code("misaligned access", "align the pointer to the size of the access"),
    "SX107": Code("read of shared memory nobody wrote", "write it first, or fewer threads read"),
    "SX108": Code("read of global memory nobody wrote", "initialise the buffer"),
    "SX109": Code("access to another thread's local memory", "pass it through shared memory"),
    "SX110": Code("write past a buffer, found afterwards", "run the memory checker for the place"),
    "SX111": Code("write to constant memory", "use __device__ memory"),
    "SX112": Code("access through a null pointer", "check the allocation"),
    "SX113": Code("free of what was not allocated", "free what cudaMalloc returned, once"),
    "SX114": Code("host code uses device memory", "copy it with cudaMemcpy or hipMemcpy first"),
    "SX115": Code("an output that no device code wrote", "write it in a kernel"),
    "SX116": Code("host code had the data", "compute it in a kernel"),
    "SX117": Code("device heap memory that was never freed", "free it in a kernel", _NOTE),
    "SX118": Code(
        "a variable that is not the device's, where a symbol is asked for",
        "rename the host's variable, which hides the __device__ or __constant__ one",
    ),
    "SX119": Code(
        "a kernel reads a variable that host code has written",
        "copy it with cudaMemcpyToSymbol or hipMemcpyToSymbol, or pass it as an argument",
    ),
    "SX120": Code(
        "host code may have run while a kernel did, and have written to the device's memory",
        "wait for the kernel before other threads go on",
        _NOTE,
    ),
    # -- races
    "SX201": Code("race on shared memory", "put a barrier between the accesses"),
    "SX202": Code("race on global memory within a block", "put a barrier between the accesses"),
    "SX203": Code("race on global memory between blocks", "use an atomic, or two launches"),
    "SX204": Code("lanes of a warp rely on running in step", "put __syncwarp() between"),
    "SX205": Code("an atomic and a plain access race", "make both atomic, or put a barrier"),
    "SX206": Code("an atomic whose scope is too narrow", "use the device-wide form"),
    # -- convergence
    "SX301": Code(
        "lanes of a warp, or parties of a barrier, disagree about it",
        "move the barrier out of the branch",
    ),
    "SX302": Code("barrier after some threads have returned", "guard the body, not the barrier"),
    "SX303": Code("deadlock", "let all named threads reach the operation"),
    "SX304": Code("a mask that does not name the calling lane", "compute the mask with __ballot"),
    "SX305": Code("lanes call with different masks", "agree on one mask"),
    "SX306": Code("a value read from a lane that takes no part", "shuffle outside the branch"),
    "SX307": Code("a shuffle width that is not a power of two within the warp", "use 2, 4 … warp"),
    "SX308": Code("whole warps returned before a barrier", "correct on today's GPUs", _NOTE),
    "SX309": Code("blocks left a grid barrier out", "let every block reach it"),
    "SX310": Code("a 32-bit mask on a 64-lane warp", "use a 64-bit mask"),
    "SX311": Code(
        "whole warps meet at different barriers",
        "works where barriers count warps; CUDA C++ promises it for one barrier only",
        _WARNING,
    ),
    "SX312": Code(
        "a lane waits for another lane of its wave",
        "waves of this target run in lock-step: let one lane of the wave wait, and for other waves",
    ),
    "SX313": Code(
        "an mbarrier that gets other arrivals than it expects",
        "initialise it with the number of arrivals of one phase",
    ),
    "SX315": Code(
        "threads that wait for what no other does", "let those that are waited for be resident"
    ),
    "SX314": Code("an operand of TMA, wgmma or a cluster that is not taken", "see the message"),
    # -- launch and resources
    "SX401": Code("invalid launch configuration", "keep within the target's limits"),
    "SX402": Code("more shared memory than the target has", "use smaller tiles"),
    "SX403": Code("more threads than __launch_bounds__ allows", "launch fewer, or raise it"),
    "SX404": Code("a thread's stack overflowed", "no recursion; smaller local arrays"),
    "SX405": Code("the time limit passed", "look at the loop that the thread was in"),
    "SX406": Code("the kernel crashed", "look at the place"),
    "SX407": Code("assertion failed", "look at the condition"),
    "SX408": Code("__trap()", "look at the condition"),
    "SX409": Code("an unknown or unmodelled call to the host API", "see the message", _WARNING),
    "SX410": Code("an instruction that warps of this width do not have", "use the target's own"),
    # -- arithmetic
    "SX501": Code("signed integer overflow", "compute indices in 64 bits"),
    "SX502": Code("shift by the width or more", "bound the count, or use 64 bits"),
    "SX503": Code("integer division by zero", "check the divisor"),
    # -- different runs, different results
    "SX601": Code("the result depends on the schedule", "look for a missing barrier or atomic"),
    "SX602": Code("the result depends on the warp's width", "count lanes with warpSize", _NOTE),
    # -- compiled code, as it is executed
    "SX701": Code("compiled code that has no model here", "run the source, or use the hardware"),
    "SX702": Code("compiled code that does not wait for its memory", "report it to the compiler"),
    "SX703": Code("host code that keeps its launches from the device", "see the message"),
    # -- what is told of a run
    "SX801": Code("more places of one code than are told", "mend those that are told", _NOTE),
}

#: Says of another code that not all of its places are told.
CUT_OFF = "SX801"
#: A launch that never ends. SX405 may be one that is only slow.
HANGS = frozenset({"SX303", "SX309", "SX312", "SX315"})


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``count`` is how often it was met; ``thread`` and ``block`` are its first."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    kernel: str = ""
    function: str = ""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    count: int = 1
    also: str = ""  # the other place of a race, as file:line

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r:.100} is not the code of a finding")

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file or self.kernel

    def __str__(self) -> str:
        who = f" [block {self.block}, thread {self.thread}]" if self.thread else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        also = f"; the other access is at {self.also}" if self.also else ""
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.severity}: {self.code} {self.message}{also}{who}{times}"

    def to_json(self) -> JsonObject:
        said = {k: v for k, v in asdict(self).items() if k in ("code", "message") or v}
        return said | {"severity": str(self.severity), "place": self.place}


def cut_off(diagnostic: Diagnostic) -> Code | None:
    """The code of which a run has more places than are told, where the finding says so."""
    return CODES.get(diagnostic.message[:5]) if diagnostic.code == CUT_OFF else None


def merge(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """One of each code and place, in order of appearance, with how often it was met."""
    merged: dict[tuple[object, ...], Diagnostic] = {}
    for diagnostic in diagnostics:
        key = (
            diagnostic.code,
            diagnostic.file,
            diagnostic.line,
            diagnostic.also,
            diagnostic.kernel if not diagnostic.line else "",
            diagnostic.message if diagnostic.code == CUT_OFF else "",
        )
        before = merged.get(key)
        merged[key] = (
            replace(before, count=before.count + diagnostic.count) if before else diagnostic
        )
    return list(merged.values())
