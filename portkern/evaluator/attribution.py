"""Attribution of the work of a call: a worker's trace, held against the kernel and the policy.

It speaks where there is something to see: the framework's operators and the host libraries that
can be asked to speak up on every venue, kernels on GPUs and in the SIMT executor. Native code of a
CPU has no launches; that its entry was called is the worker's own doing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from portkern.cuda_source.comments import without_comments
from portkern.guard import TorchOps
from portkern.guard.rules import ATEN_GLUE, ATEN_HEAVY, VENDOR_KERNEL
from portkern.records.record import Finding, Launch, Verdict
from portkern.spec.backend import Resources
from portkern.spec.candidate import Candidate
from portkern.worker import protocol
from portkern.worker.protocol import Trace

#: The share of the time whose taker has done the work.
MOST = 0.5
_ALLOW = "torch_ops=allow accepts it"


@dataclass(frozen=True)
class Proof:
    """``problem`` is empty when nothing speaks against the kernel; else ``verdict`` goes with it.
    ``findings`` are notes."""

    launches: tuple[Launch, ...] = ()
    verdict: Verdict = Verdict.PASSED
    problem: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class AttributedKernel:
    """A kernel whose calls are attributed: ``gpu`` says that kernels must have been launched, on
    the hardware or in an executor, which is ``untimed``."""

    candidate: Candidate
    resources: tuple[Resources, ...]
    torch_ops: TorchOps
    gpu: bool
    untimed: bool = False

    @property
    def needs_none(self) -> bool:
        """Whether nobody can tell what part of the work an operator did, and none is needed: a
        class of torch.nn where nothing is timed."""
        return self.untimed and self.candidate.style == "module"


def hold(trace: Trace, work: AttributedKernel, *, seconds: float) -> Proof:
    """The proof that a worker's ``trace`` gives for ``work``."""
    kept = tuple(Launch.model_validate(asdict(launch)) for launch in trace.launches)
    if trace.ended:
        return Proof(kept, Verdict.SUSPICIOUS, "the kernel ended the profile of its own call")
    timed = 0.0 if work.gpu else seconds * 1e6
    culprit = _host_culprit(trace.operators, trace.routines, timed, any_=work.needs_none)
    culprit = culprit or (_device_culprit(kept, work) if work.gpu else "")
    if culprit and work.torch_ops == "forbid":
        return Proof(kept, Verdict.REJECTED, f"{culprit} did the work; {_ALLOW}")
    notes = [_note("library", f"{culprit} did the work")] if culprit else []
    missing = trace.missing
    if work.gpu and not kept and not missing and not culprit:
        return Proof(kept, Verdict.REJECTED, "it launched no kernel, expected at least one")
    if missing and work.gpu:
        notes.append(_note("unproved", f"no proof of who did the work: {missing}"))
    return Proof(kept, findings=tuple(notes))


def _note(code: str, message: str) -> Finding:
    return Finding(code=code, severity="note", message=message)


def _host_culprit(
    operators: Iterable[protocol.SeenLaunch], routines: Iterable[str], call_us: float, *, any_: bool
) -> str:
    """The operator or routine that did the work; where ``call_us`` is known, also those that are
    not the work by name but took most of the time, and with ``any_`` each of them."""
    light_us, longest = 0.0, protocol.SeenLaunch("")
    for operator in operators:
        name = plain(operator.name)
        if name in ATEN_GLUE:
            continue
        if any_ or ATEN_HEAVY.fullmatch(name):
            return f"torch's {operator.name}"
        light_us += operator.us
        longest = max(longest, operator, key=lambda launch: launch.us)
    if call_us and light_us >= MOST * call_us:
        return f"torch's {longest.name}"
    for routine in routines:
        return f"the library routine {routine}"
    return ""


def plain(operator: str) -> str:
    """``softmax`` of ``aten::_softmax``, ``relu`` of ``aten::relu_``."""
    return operator.rpartition("::")[2].strip("_").removesuffix("_out")


def _device_culprit(launches: Iterable[Launch], work: AttributedKernel) -> str:
    """The longest of the kernels that are not the candidate's, when its own took less than most
    of the device's time; executors have no time and count launches."""
    own = {base(resource.kernel) for resource in work.resources}
    own |= set(_WORD.findall(_without_comments(work.candidate)))  # an executor's are expressions
    others = [launch for launch in launches if _is_foreign(launch.name, own)]
    if not others:
        return ""
    total, foreign = (sum(map(_weight, some)) for some in (launches, others))
    if total - foreign >= MOST * total:
        return ""
    return f"the kernel {max(others, key=_weight).name}"


def _weight(launch: Launch) -> float:
    return launch.us or float(launch.count)


def _is_foreign(kernel: str, own: set[str]) -> bool:
    """A vendor's name is believed to be the vendor's, whatever the source has words for."""
    return bool(VENDOR_KERNEL.search(kernel)) or base(kernel) not in own


_WORD = re.compile(r"[A-Za-z_]\w*")
_PYTHON_COMMENT = re.compile(r"#[^\n]*")


def _without_comments(candidate: Candidate) -> str:
    texts = (candidate.source, *candidate.companions.texts.values())
    if candidate.language in ("cuda", "hip", "c++"):
        return "\n".join(map(without_comments, texts))
    return "\n".join(_PYTHON_COMMENT.sub(" ", text) for text in texts)


def base(kernel: str) -> str:
    """``scale`` of ``void (anonymous namespace)::scale<float, 4>(float*)`` and of ``scale<4>``."""
    name = kernel.replace("(anonymous namespace)::", "").removesuffix(".kd")
    head = re.split(r"[<(\[]", name, maxsplit=1)[0]
    return (head.split() or [""])[-1].rpartition("::")[2]
