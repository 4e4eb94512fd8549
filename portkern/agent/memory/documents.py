"""Documents to be looked up: kernels that ship with portkern, guides, hints, the run itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from portkern import ops
from portkern.agent import briefing
from portkern.agent.attempt import Attempt
from portkern.agent.memory.family import family
from portkern.agent.memory.text import code, result
from portkern.agent.operator_kind import has_products
from portkern.agent.task import Task
from portkern.spec import catalogue, own_headers
from portkern.spec.candidate import Candidate
from portkern.spec.op import Op

_SECTION = re.compile(r"^## ", re.MULTILINE)
#: How often an op's words are said, and of each time its kind's: of 3 to 12 the best in finding
#: kernels of the same kind, and in answering questions.
_SAID, _OF_KIND = 12, 3


@dataclass(frozen=True)
class MemoryDocument:
    """``key`` is what a search compares, ``text`` what a prompt shows."""

    title: str
    text: str
    key: str


def question(op: Op) -> str:
    """The words by which an op is looked up, and by which its kernels are found: what it is for and
    of which kind, over and over, since those are few among the words of a kernel."""
    kind = [f"kind{family(op)}", *(["kindproducts"] if has_products(op) else [])]
    said = f"{op.name}\n{op.description}\n{' '.join(kind * _OF_KIND)}\n"
    return f"{said * _SAID}{op.name}\n{op.description}\n{op.reference_source}"


def of_kernel(kernel: Candidate) -> MemoryDocument:
    about = question(ops.load(kernel.op))
    title = f"The catalogue's kernel of {kernel.op}"
    return MemoryDocument(title, code(kernel.source, kernel.language), f"{about}\n{kernel.source}")


def kernels(task: Task, *, own: bool = False) -> Iterator[MemoryDocument]:
    """The shipped kernels in the task's backend and language. Without ``own`` those of the op
    itself are left out: they would be the answer. Where authors may not take portkern's headers,
    kernels that take them are left out too."""
    for name in ops.names():
        if not own and _is_same(ops.load(name), task.op):
            continue
        for kernel in catalogue.candidates(name, task.backend, task.target):
            shown = task.library == "allow" or not own_headers.taken(kernel.source)
            if kernel.language == task.language and shown:
                yield of_kernel(kernel)


def _is_same(first: Op, other: Op) -> bool:
    """Whether both are the same operator, also when an imported op bears another name. ``a @ b``
    means one thing for matrices and another for batches of them."""
    ranks = [[len(tensor.shape) for tensor in op.signature.inputs] for op in (first, other)]
    alike = first.reference_source == other.reference_source and ranks[0] == ranks[1]
    return alike or first.name == other.name


def guide(task: Task, *, own: bool = False) -> Iterator[MemoryDocument]:
    """The guide by sections. Without ``own`` an example that is the op's own kernel is not."""
    for section in _SECTION.split(task.guide):
        heading, _, text = section.strip().partition("\n")
        if not own and _defines(section, task.op.name):
            continue
        if text.strip():
            title = f"From the guide to {task.backend.name}: {heading.lstrip('# ')}"
            yield MemoryDocument(title, text.strip(), section)


def _defines(section: str, op: str) -> bool:
    return re.search(rf"\b(def|int|void)\s+{re.escape(op)}\s*\(", section) is not None


def hints(task: Task, *, own: bool = False) -> Iterator[MemoryDocument]:
    for hint in task.target.hints_for(task.language, without=briefing.without(task)):
        yield MemoryDocument(f"A hint for {task.target.name}", hint, hint)


#: What is the same for every slot; ``log``, the run's own correct attempts, is not.
CORPORA: Mapping[str, Callable[..., Iterator[MemoryDocument]]] = {
    "catalogue": kernels,
    "guide": guide,
    "hints": hints,
}
LOG = "log"


def of_attempt(attempt: Attempt, task: Task) -> MemoryDocument:
    text = code(attempt.source, attempt.language or task.language)
    title = f"A kernel of this run ({attempt.id}): {result(attempt, task)}"
    return MemoryDocument(title, text, f"{attempt.idea}\n{attempt.source}")
