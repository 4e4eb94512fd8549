"""Every seeded bug is caught under its code, and no correct twin is accused of anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.simt.execute import runtime_library

from .simt.suite import Case, cases
from .simt.verdicts import evaluate

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)


def _name(case: Case) -> str:
    return case.name


@pytest.mark.sampled("case", by="group")
@pytest.mark.parametrize("case", cases(), ids=_name)
def test_the_mutant_is_caught(case: Case, tmp_path: Path) -> None:
    for width in case.widths:
        verdict = evaluate(case, width, tmp_path, bug=True)
        assert case.caught(verdict.seen), (width, case.what, verdict)


@pytest.mark.sampled("case", by="group")
@pytest.mark.parametrize("case", cases(), ids=_name)
def test_the_correct_twin_is_left_in_peace(case: Case, tmp_path: Path) -> None:
    for width in case.twin_widths:
        verdict = evaluate(case, width, tmp_path, bug=False)
        assert verdict.clean, (width, case.what, verdict)
