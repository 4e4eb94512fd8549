"""Code of a program that has to do with other processes or with the executor, not with its own
work: what its runs show is not a proof, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from portkern.cuda_source.comments import without_comments
from portkern.guard import rules
from portkern.port.proof.outcome import KernelProof, Outcome
from portkern.port.proof.texts import SourceTexts

_BETWEEN = re.compile(r'"\s*"')
#: Calls that look into processes, by name or by number.
_CALL = re.compile(
    r"\b(?:SYS_|__NR_)?(ptrace|process_vm_readv|process_vm_writev|process_madvise|pidfd_getfd|kcmp"
    r"|userfaultfd)\b"
)
_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"')
#: Of itself a process may ask what it is and what it maps; its memory and handles are another way
#: to what is the executor's.
_FILE = re.compile(rf"{rules.PROCESS_FILE.pattern}(?!self/(?:exe|maps|cmdline|statm|io)$)")
_SETTING = re.compile(r"\bGCOV_|\bLD_(?:PRELOAD|AUDIT)\b")
_COUNTS = re.compile(r"\b__gcov_\w+")


def doubted(proofs: Iterable[KernelProof], *texts: SourceTexts) -> tuple[KernelProof, ...]:
    """The proofs; where a text meddles, those that are proven become unproven."""
    why = next(filter(None, (meddles(text.whole) for text in texts)), "")
    return tuple(
        replace(proof, outcome=Outcome.UNPROVEN, why=why)
        if why and proof.outcome is Outcome.PROVEN
        else proof
        for proof in proofs
    )


def meddles(text: str) -> str:
    """Why runs of this code are not to be believed; '' where nothing says so."""
    code = _BETWEEN.sub("", without_comments(text))
    if call := _CALL.search(code):
        return f"the program looks into other processes ({call[1]}): its runs prove nothing"
    for literal in _TEXT.findall(code):
        if _FILE.search(literal):
            return f"the program opens files of processes ({literal!r:.60}): its runs prove nothing"
        if found := _SETTING.search(literal) or rules.EXECUTOR_TEXT.search(literal):
            return f"the program asks how it is run ({found[0]}): its runs prove nothing"
    if found := _COUNTS.search(code) or rules.EXECUTOR_FUNCTION.search(_TEXT.sub('""', code)):
        return f"the program turns to the executor ({found[0]}): its runs prove nothing"
    return ""
