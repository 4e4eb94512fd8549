"""The seeded-bug suite's files are well formed: each has a header, a twin and one small defect."""

from __future__ import annotations

import difflib
import re
from collections import Counter
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


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_case_is_a_program_with_a_twin_and_one_small_defect(case: Case) -> None:
    twin, mutant = version(case, bug=False), version(case, bug=True)
    changed = [line for line in difflib.ndiff(twin, mutant) if line[0] in "+-"]
    assert 0 < len(changed) <= 24
    for lines in (twin, mutant):
        text = "\n".join(lines)
        assert text.count("int main() {") == 1 and '#include "check.h"' in text
        assert "return check(" in text and "__global__" in text
        assert text.count("{") == text.count("}")
    assert 20 <= len(mutant) <= 85


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_case_expects_what_the_executor_can_say(case: Case) -> None:
    assert all(not sign.code or sign.code in CODES for sign in case.expect)
    assert set(case.twin_widths) >= set(case.widths)
    assert case.what[0].islower() and not case.what.endswith(".") and len(case.what) < 95
    if case.group is Group.PORTING:
        assert case.language == "hip" and case.pitfall
    if case.language == "cuda":
        assert all(sign.kind != "build" for sign in case.expect)


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_case_keeps_to_its_language(case: Case) -> None:
    twin = "\n".join(version(case, bug=False))
    other = r"\bcuda[A-Z]|\bCHECK_CUDA\b" if case.language == "hip" else r"\bhip[A-Z]|\bCHECK_HIP\b"
    assert not re.search(other, twin)
    if case.language == "cuda":
        assert f"#include <{'cuda'}_runtime.h>" in twin
    else:
        assert "#include <hip/hip_runtime.h>" in twin


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
    listed = {case.path for case in CASES} | {BUGS / "check.h"}
    assert {path for path in BUGS.rglob("*") if path.is_file()} == listed


def test_a_sign_reads_back_and_shows() -> None:
    for text in ("SX201", "wrong", "error", "build", "build SX001"):
        assert str(Sign.parse(text)) == text
    assert Sign.parse("SX201").shows(Seen(codes=frozenset({"SX201"}), status=0))
    assert Sign.parse("wrong").shows(Seen(status=1)) and not Sign.parse("wrong").shows(Seen())
    assert Sign.parse("build").shows(Seen(refused=True))
    assert not Sign.parse("build SX001").shows(Seen(refused=True))
    assert not Sign.parse("SX201").shows(Seen(refused=True, codes=frozenset({"SX201"})))
    with pytest.raises(ValueError, match="no sign"):
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
