"""The seeded-bug suite's files are well formed: each has a header, a twin and one small defect."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from portkern.simt.diagnostics import CODES

from .simt.suite import BUGS, Case, Group, Seen, Sign, cases, version

CASES = cases()
#: Porting pitfalls that compile silently and that a run on a CPU can show.
SILENT_PITFALLS = {
    1,
    2,
    4,
    5,
    6,
    7,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    22,
    26,
    31,
    33,
    37,
    40,
    43,
    49,
    51,
    53,
    54,
}
BLOCKED_AT_BUILD = {3, 8, 17, 18, 19, 20, 27, 28, 29, 30, 36, 38, 44, 45, 46, 47}


def test_a_case_is_a_program_with_a_twin_and_one_small_defect() -> None:
    assert not offenders(_what_is_not_a_program_with_a_twin)


def _what_is_not_a_program_with_a_twin(case: Case) -> Iterator[str]:
    twin, mutant = version(case, bug=False), version(case, bug=True)
    changed = [line for line in difflib.ndiff(twin, mutant) if line[0] in "+-"]
    if not 0 < len(changed) <= 24:
        yield f"{len(changed)} lines changed"
    for lines in (twin, mutant):
        text = "\n".join(lines)
        if text.count("int main() {") != 1 or '#include "check.h"' not in text:
            yield "no main, or no check.h"
        if "return check(" not in text or "__global__" not in text:
            yield "no check, or no kernel"
        if text.count("{") != text.count("}"):
            yield "unbalanced braces"
    if not 20 <= len(mutant) <= 85:
        yield f"{len(mutant)} lines"


def test_a_case_expects_what_the_executor_can_say() -> None:
    assert not offenders(_what_the_executor_cannot_say)


def _what_the_executor_cannot_say(case: Case) -> Iterator[str]:
    if any(sign.code and sign.code not in CODES for sign in case.expect):
        yield "an unknown code"
    if not set(case.twin_widths) >= set(case.widths):
        yield "the twin is not run at every width"
    if not case.what[0].islower() or case.what.endswith(".") or len(case.what) >= 95:
        yield f"not a sentence: {case.what}"
    if case.group is Group.PORTING and not (case.language == "hip" and case.pitfall):
        yield "a pitfall of porting without its number, or not in HIP"
    if case.language == "cuda" and any(sign.kind == "build" for sign in case.expect):
        yield "expects a refused build of CUDA"


def test_a_case_keeps_to_its_language() -> None:
    assert not offenders(_what_is_of_the_other_language)


def _what_is_of_the_other_language(case: Case) -> Iterator[str]:
    twin = "\n".join(version(case, bug=False))
    other = r"\bcuda[A-Z]|\bCHECK_CUDA\b" if case.language == "hip" else r"\bhip[A-Z]|\bCHECK_HIP\b"
    if found := re.search(other, twin):
        yield found[0]
    header = "cuda_runtime.h" if case.language == "cuda" else "hip/hip_runtime.h"
    if f"#include <{header}>" not in twin:
        yield f"does not include {header}"


def offenders(faults: Callable[[Case], Iterable[str]]) -> dict[str, list[str]]:
    """The faults of each case, by name; empty when there are none."""
    return {case.name: found for case in CASES if (found := list(faults(case)))}


def test_there_are_enough_cases_and_no_two_are_alike() -> None:
    assert len(CASES) >= 110
    assert min(Counter(case.group for case in CASES).values()) >= 7
    assert len({case.name for case in CASES}) == len({case.what for case in CASES}) == len(CASES)
    bodies = Counter(_normalised(case) for case in CASES)
    assert bodies.most_common(1)[0][1] == 1


def test_the_pitfalls_that_a_run_or_a_build_can_show_have_cases() -> None:
    covered = {case.pitfall for case in CASES if case.pitfall}
    assert SILENT_PITFALLS | BLOCKED_AT_BUILD <= covered


def test_files_are_listed_or_shared() -> None:
    listed = {case.path for case in CASES} | {BUGS / "check.h", BUGS / "async.h"}
    assert {path for path in BUGS.rglob("*") if path.is_file()} == listed


def test_a_sign_reads_back_and_shows() -> None:
    for text in ("SX201", "wrong", "error", "build", "build SX001"):
        assert str(Sign.parse(text)) == text
    assert Sign.parse("SX201").shows(Seen(codes=frozenset({"SX201"}), status=0))
    assert Sign.parse("wrong").shows(Seen(status=1)) and not Sign.parse("wrong").shows(Seen())
    assert Sign.parse("build").shows(Seen(refused=True))
    assert not Sign.parse("build SX001").shows(Seen(refused=True))
    assert not Sign.parse("SX201").shows(Seen(refused=True, codes=frozenset({"SX201"})))
    with pytest.raises(ValueError, match="Unknown sign"):
        Sign.parse("SX2")


def test_a_faulty_header_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "one.cu"
    path.write_text(
        "// what: x\n// expect: wrong\n// widths: 48\n// sanitizer: none\n// group: races\n"
    )
    with pytest.raises(ValueError, match=r"one\.cu: widths '48'"):
        Case.parse(path)
    path.write_text("// what: x\n// colour: red\n")
    with pytest.raises(ValueError, match="unknown or repeated key 'colour'"):
        Case.parse(path)
    path.write_text("// what: x\n")
    with pytest.raises(ValueError, match="lacks 'widths'"):
        Case.parse(path)


def _normalised(case: Case) -> str:
    """A case's twin without names, numbers and comments: what a copy would share."""
    text = re.sub(r"//.*", "", "\n".join(version(case, bug=False)))
    return re.sub(r"\w+", "w", re.sub(r"\s+", "", text))
